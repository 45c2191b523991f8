import { decodeCursor, readDirection, type Cursor } from '../../core/cursor.js';
import { OptionError } from '../../core/errors.js';
import { checkInteger, checkKeys, show } from '../../core/options.js';
import type { Page } from '../../store/port.js';

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

interface Sort {
  readonly field: SortField;
  readonly direction: 1 | -1;
}

interface JobCursor extends Cursor {
  readonly at: Date;
  readonly sort: Sort;
}

export interface PageRequest {
  readonly page: Page;
  readonly from: JobCursor | undefined;
  readonly sort: Sort;
}

function sortOf(where: string, sort: FindOptions['sort']): Sort {
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

function isJobCursor(cursor: Cursor): cursor is JobCursor {
  const { field, direction } = (cursor.sort ?? {}) as Partial<Sort>;
  return cursor.at !== null && FIELDS.some((one) => one === field) && (direction === 1 || direction === -1);
}

export function pageOf(where: string, options: FindOptions = {}): PageRequest {
  checkKeys(where, options, ['limit', 'cursor', 'sort']);
  const limit = checkInteger(where, 'limit', options.limit ?? 50, 1, 1_000);
  const from = options.cursor === undefined ? undefined : decodeCursor(where, options.cursor, isJobCursor);
  const sort = from?.sort ?? sortOf(where, options.sort);
  const after = from === undefined ? {} : { after: { at: from.at, key: from.key } };
  return {
    page: { field: sort.field, direction: readDirection(sort.direction, from), limit, ...after },
    from,
    sort,
  };
}
