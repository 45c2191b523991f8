/** Lists and counts documents with schedules, and makes one of them due now. */
import { decodeCursor, pageOfItems, readDirection, type Cursor } from '../core/cursor.js';
import { OptionError } from '../core/errors.js';
import { checkFieldValues, type FieldValues } from '../core/fields.js';
import { checkInteger, checkKeys, checkOneOf, checkRange, checkText, eitherName } from '../core/options.js';
import { idText } from '../core/text/paths.js';
import type { DocumentJob, DocumentJobStore, DocumentQuery, DocumentState } from '../store/documents.js';
import type { TimeRange } from '../store/port.js';

export interface DocumentsFilter {
  /**
   * States with a due time (`due`, `waiting`) or states without one (`failed`, `parked`), not both. Default: `due` and
   * `waiting`, or any state if `id` is given.
   */
  readonly state?: DocumentState | readonly DocumentState[];
  /** Values of `FoundDocument.id` from an earlier result. */
  readonly id?: string | readonly string[];
  /** Text that the failure's reason contains. */
  readonly error?: string;
  /** Fields of the document and the values they must have, such as `{ 'user.id': 5 }`. */
  readonly data?: FieldValues;
  /** When the document is due. */
  readonly runAt?: TimeRange;
  /** The same as `runAt`. */
  readonly sleepUntil?: TimeRange;
}

export interface DocumentsCountOptions {
  /** Stop counting here, from 1 to 1,000,000; a result equal to it means "at least". Default: 1,000. */
  readonly limit?: number;
}

export interface DocumentsPageOptions {
  /** How many documents a page has, from 1 to 1,000. Default: 50. */
  readonly limit?: number;
  /** `next` or `previous` of an earlier page. It includes the order, so `order` is ignored. Default: the first page. */
  readonly cursor?: string;
  /** 1: soonest first; -1: latest first. Default: 1. */
  readonly order?: 1 | -1;
}

export interface FoundDocument<Doc = Record<string, unknown>> extends DocumentJobView<Doc> {
  /** Text that identifies the document, for the filter `id` and for links. */
  readonly id: string;
  /** The document's id in readable form. */
  readonly title: string;
  readonly state: DocumentState;
  /** When the document is due; absent if no run is planned. The same as `sleepUntil`. */
  readonly runAt?: Date;
  /** The message of the last failure. The same as `failure.reason`. */
  readonly error?: string;
}

type DocumentJobView<Doc> = Omit<DocumentJob<Doc>, 'id' | 'data'>;

export interface DocumentsPage<Doc = Record<string, unknown>> {
  readonly items: readonly FoundDocument<Doc>[];
  readonly next: string | null;
  readonly previous: string | null;
  /** The query reached its time limit, so more documents may match. */
  readonly partial?: true;
}

const STATES: readonly DocumentState[] = ['due', 'waiting', 'failed', 'parked'];
const TIMED: readonly DocumentState[] = ['due', 'waiting'];

const listOf = <T>(value: T | readonly T[]): readonly T[] =>
  Array.isArray(value) ? (value as readonly T[]) : [value as T];

function statesOf(where: string, { state, id }: DocumentsFilter): readonly DocumentState[] | undefined {
  if (state === undefined) return id === undefined ? TIMED : undefined;
  const states = listOf(state).map((one) => checkOneOf(where, 'state', one, STATES));
  if (states.every((one) => TIMED.includes(one)) || !states.some((one) => TIMED.includes(one))) return states;
  throw new OptionError(
    `${where}: state cannot mix due or waiting with failed or parked, which have no due time to sort by; got ${states.join(', ')}.`,
  );
}

function queryOf(where: string, filter: DocumentsFilter): Omit<DocumentQuery, 'direction' | 'limit'> {
  checkKeys(where, filter, ['state', 'id', 'error', 'data', 'runAt', 'sleepUntil']);
  const states = statesOf(where, filter);
  const { id, error, data } = filter;
  const runAt = eitherName(where, filter, 'runAt', 'sleepUntil');
  return {
    ...(states === undefined ? {} : { states }),
    ...(id === undefined ? {} : { keys: listOf(id).map((text) => checkText(where, 'id', text)) }),
    ...(error === undefined ? {} : { error: checkText(where, 'error', error) }),
    ...(data === undefined ? {} : { data: checkFieldValues(where, 'data', data) }),
    ...(runAt === undefined ? {} : { sleepUntil: checkRange(`${where}: runAt`, runAt) }),
  };
}

interface DocumentCursor extends Cursor {
  readonly sort: 1 | -1;
}

const isDocumentCursor = (cursor: Cursor): cursor is DocumentCursor =>
  cursor.sort === 1 || cursor.sort === -1;

function stateOf({ sleepUntil, failure }: DocumentJob<unknown>, now: number): DocumentState {
  if (sleepUntil instanceof Date) return sleepUntil.getTime() <= now ? 'due' : 'waiting';
  return failure?.ended === true ? 'failed' : 'parked';
}

function toFound<Doc>(key: string, job: DocumentJob<Doc>, now: number): FoundDocument<Doc> {
  const { id, sleepUntil, interval, repeatUntil, autoRemove, timezone, failure, document } = job;
  const fields = { sleepUntil, interval, repeatUntil, autoRemove, timezone, failure, document };
  const known = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  return {
    ...known,
    id: key,
    title: idText(id),
    state: stateOf(job, now),
    ...(sleepUntil instanceof Date ? { runAt: sleepUntil } : {}),
    ...(failure ? { error: failure.reason } : {}),
  };
}

type Finder<Doc> = NonNullable<DocumentJobStore<Doc>['find']>;

function finderOf<Doc>(where: string, store: DocumentJobStore<Doc>): Finder<Doc> {
  if (store.find !== undefined) return (query, call) => (store.find as Finder<Doc>)(query, call);
  throw new OptionError(`${where}: this store cannot list documents; it has no \`find\`.`);
}

export async function findPage<Doc>(
  store: DocumentJobStore<Doc>,
  now: number,
  filter: DocumentsFilter,
  options: DocumentsPageOptions,
): Promise<DocumentsPage<Doc>> {
  const where = 'find';
  checkKeys(where, options, ['limit', 'cursor', 'order']);
  const limit = checkInteger(where, 'limit', options.limit ?? 50, 1, 1_000);
  const from =
    options.cursor === undefined ? undefined : decodeCursor(where, options.cursor, isDocumentCursor);
  const sort = from?.sort ?? (options.order === -1 ? -1 : 1);
  const found = await finderOf(where, store)(
    {
      ...queryOf(where, filter),
      direction: readDirection(sort, from),
      limit,
      ...(from === undefined ? {} : { after: { at: from.at, key: from.key } }),
    },
    { signal: new AbortController().signal },
  );
  const { items, next, previous } = pageOfItems(
    { items: found.documents, more: found.more },
    { from },
    ({ key, job }, back) => ({ at: job.sleepUntil instanceof Date ? job.sleepUntil : null, key, back, sort }),
  );
  return {
    items: items.map(({ key, job }) => toFound(key, job, now)),
    next,
    previous,
    ...(found.partial ? { partial: true as const } : {}),
  };
}

export async function countMatching<Doc>(
  store: DocumentJobStore<Doc>,
  filter: DocumentsFilter,
  options: DocumentsCountOptions,
): Promise<number> {
  checkKeys('count', options, ['limit']);
  const limit = checkInteger('count', 'limit', options.limit ?? 1_000, 1, 1_000_000);
  if (store.count === undefined)
    throw new OptionError('count: this store cannot count documents; it has no `count`.');
  return store.count({ ...queryOf('count', filter), limit }, { signal: new AbortController().signal });
}

/**
 * Makes a document due now if its `sleepUntil` is still the value just read. Returns `changed` if another writer
 * changed it in between, for example a scheduler that locked the document, and `running` if its lock left a mark.
 */
export async function makeDue<Doc>(
  store: DocumentJobStore<Doc>,
  now: Date,
  id: string,
): Promise<'due' | 'running' | 'changed' | 'missing'> {
  const call = { signal: new AbortController().signal };
  const query = { keys: [checkText('runNow', 'id', id)], direction: 1 as const, limit: 1 };
  const [found] = (await finderOf('runNow', store)(query, call)).documents;
  if (found === undefined) return 'missing';
  const { job } = found;
  const ifSleepUntil = job.sleepUntil instanceof Date ? job.sleepUntil : null;
  if (ifSleepUntil !== null && ifSleepUntil <= now) return 'due';
  if (ifSleepUntil !== null && job.lockedUntil?.getTime() === ifSleepUntil.getTime()) return 'running';
  return (await store.update(job.id, { sleepUntil: now }, { ifSleepUntil, ...call })) ? 'due' : 'changed';
}
