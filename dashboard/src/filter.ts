import type { WorkKind } from '../../src/dashboard/contract.js';

/** What the list shows, as in the address. Every part is text, because it comes from an address. */
export interface Filter {
  readonly kind: WorkKind;
  readonly names: readonly string[];
  readonly statuses: readonly string[];
  readonly error: string;
  /** `path:value` */
  readonly fields: readonly string[];
  readonly time: string;
  readonly from: string;
  readonly to: string;
  readonly sort: string;
  readonly order: string;
}

export const TIMES = ['createdAt', 'updatedAt', 'dueAt'] as const;
const KINDS: readonly WorkKind[] = ['jobs', 'tasks', 'documents'];

/** The orders that the API offers for each kind. The first is its default. */
export const ORDERS: Readonly<Record<WorkKind, readonly (readonly [value: string, label: string])[]>> = {
  jobs: [
    ['createdAt desc', 'Newest first'],
    ['createdAt asc', 'Oldest first'],
    ['updatedAt desc', 'Last changed first'],
    ['dueAt asc', 'Next due first'],
  ],
  tasks: [
    ['dueAt desc', 'Last due first'],
    ['dueAt asc', 'Next due first'],
    ['createdAt desc', 'Newest first'],
    ['createdAt asc', 'Oldest first'],
    ['updatedAt desc', 'Last changed first'],
  ],
  documents: [
    ['dueAt asc', 'Next due first'],
    ['dueAt desc', 'Last due first'],
  ],
};

/** The order that a list has, as in `ORDERS`. The API sorts in descending order if only the time is given. */
export function orderOf({ kind, sort, order }: Filter): string {
  const [first = ''] = ORDERS[kind][0] ?? [];
  if (sort === '')
    return order === '' || kind === 'documents' ? first : `${first.split(' ')[0] ?? ''} ${order}`;
  return `${sort} ${order || 'desc'}`;
}

export function readFilter(query: URLSearchParams, kinds: readonly WorkKind[]): Filter {
  const asked = KINDS.find((kind) => kind === query.get('kind'));
  return {
    kind: asked ?? kinds[0] ?? 'jobs',
    names: query.getAll('name'),
    statuses: query.getAll('status'),
    error: query.get('error') ?? '',
    fields: query.getAll('field'),
    time: query.get('time') ?? '',
    from: query.get('from') ?? '',
    to: query.get('to') ?? '',
    sort: query.get('sort') ?? '',
    order: query.get('order') ?? '',
  };
}

/** The part that selects work, for counts and bulk actions. */
export function writeTarget(filter: Filter): URLSearchParams {
  const query = new URLSearchParams();
  for (const name of filter.names) query.append('name', name);
  for (const status of filter.statuses) query.append('status', status);
  if (filter.error !== '') query.set('error', filter.error);
  for (const field of filter.fields) query.append('field', field);
  if (filter.from !== '' || filter.to !== '') {
    query.set('time', filter.time || 'createdAt');
    if (filter.from !== '') query.set('from', filter.from);
    if (filter.to !== '') query.set('to', filter.to);
  }
  return query;
}

/** The whole address of a list, without its cursor: a changed filter starts at the first page. */
export function writeFilter(filter: Filter): URLSearchParams {
  const query = new URLSearchParams({ kind: filter.kind });
  for (const [key, value] of writeTarget(filter)) query.append(key, value);
  if (filter.sort !== '') query.set('sort', filter.sort);
  if (filter.order !== '') query.set('order', filter.order);
  return query;
}

export function isNarrowed(filter: Filter): boolean {
  return [...writeTarget(filter)].length > 0;
}

/** The address of a list that shows only this. */
export function workPath(kind: WorkKind, parts: Partial<Omit<Filter, 'kind'>> = {}): string {
  const query = new URLSearchParams({ kind });
  return `work?${writeFilter({ ...readFilter(query, [kind]), ...parts }).toString()}`;
}

export function detailPath(kind: WorkKind, id: string): string {
  return `work/${kind}/${encodeURIComponent(id)}`;
}

/** Describes a filter in one sentence, for the dialog before a bulk action. */
export function inWords(filter: Filter): string {
  const parts = [
    filter.names.length > 0 && `named ${filter.names.join(' or ')}`,
    filter.statuses.length > 0 && `in status ${filter.statuses.join(' or ')}`,
    filter.error !== '' && `whose error contains “${filter.error}”`,
    ...filter.fields.map((field) => `where ${field.replace(':', ' is ')}`),
    filter.from !== '' && `with ${filter.time || 'createdAt'} from ${filter.from}`,
    filter.to !== '' &&
      `${filter.from === '' ? `with ${filter.time || 'createdAt'} ` : ''}up to ${filter.to}`,
  ];
  return parts.filter((part) => part !== false).join(', ');
}
