import { OptionError } from '../core/errors.js';
import type { JobRecord } from '../core/records/job.js';
import { checkInteger, checkKeys, checkOneOf, show } from '../core/options.js';
import type { Page } from '../store/port.js';

type SortField = Page['field'];
const FIELDS: readonly SortField[] = ['createdAt', 'updatedAt', 'nextRunAt'];
const SORTS = ['createdAt', 'updatedAt', 'runAt', 'nextRunAt'] as const;

export interface FindOptions {
  /** How many jobs a page has, from 1 to 1,000. Default: 50. */
  readonly limit?: number;
  /**
   * `next` or `previous` of an earlier page. It includes the sort order, so `sort` is ignored. Default: the first page.
   */
  readonly cursor?: string;
  /**
   * The field to sort by: 1 ascending, -1 descending, ties by id. `nextRunAt` is the same as `runAt`. Default: `{
   * createdAt: -1 }`.
   */
  readonly sort?: Partial<Record<(typeof SORTS)[number], 1 | -1>>;
}

interface Cursor {
  readonly field: SortField;
  readonly direction: 1 | -1;
  /** True for the page before this position, which is read in reverse. */
  readonly back: boolean;
  readonly at: string;
  readonly key: string;
}

export interface PageRequest {
  readonly page: Page;
  readonly back: boolean;
  readonly continued: boolean;
  readonly sort: { readonly field: SortField; readonly direction: 1 | -1 };
}

function sortOf(where: string, sort: FindOptions['sort']): { field: SortField; direction: 1 | -1 } {
  if (sort === undefined) return { field: 'createdAt', direction: -1 };
  checkKeys(`${where}: sort`, sort, SORTS);
  const [entry, ...others] = Object.entries(sort) as [(typeof SORTS)[number], unknown][];
  if (entry === undefined || others.length > 0)
    throw new OptionError(`${where}: sort must name one field of createdAt, updatedAt, runAt.`);
  const [field, direction] = entry;
  if (direction === 1 || direction === -1)
    return { field: field === 'runAt' ? 'nextRunAt' : field, direction };
  throw new OptionError(`${where}: sort.${field} must be 1 or -1, got ${show(direction)}.`);
}

function readCursor(where: string, text: unknown): Cursor {
  try {
    const cursor = JSON.parse(Buffer.from(String(text), 'base64url').toString()) as Cursor;
    checkOneOf(where, 'cursor', cursor.field, FIELDS);
    if (Number.isNaN(new Date(cursor.at).getTime()) || typeof cursor.key !== 'string')
      throw new TypeError('no place');
    return cursor;
  } catch (cause) {
    throw new OptionError(
      `${where}: cursor must be \`next\` or \`previous\` of an earlier answer, got ${show(text)}.`,
      { cause },
    );
  }
}

export function pageOf(where: string, options: FindOptions = {}): PageRequest {
  checkKeys(where, options, ['limit', 'cursor', 'sort']);
  const limit = checkInteger(where, 'limit', options.limit ?? 50, 1, 1_000);
  if (options.cursor === undefined) {
    const sort = sortOf(where, options.sort);
    return { page: { ...sort, limit }, back: false, continued: false, sort };
  }
  const { field, direction, back, at, key } = readCursor(where, options.cursor);
  const sort = { field, direction: direction === 1 ? (1 as const) : (-1 as const) };
  const asked = back ? (sort.direction === 1 ? (-1 as const) : (1 as const)) : sort.direction;
  return {
    page: { field, direction: asked, limit, after: { at: new Date(at), key } },
    back,
    continued: true,
    sort,
  };
}

export function cursorOf(request: PageRequest, record: JobRecord, key: string, back: boolean): string {
  const cursor: Cursor = { ...request.sort, back, at: record[request.sort.field].toISOString(), key };
  return Buffer.from(JSON.stringify(cursor)).toString('base64url');
}
