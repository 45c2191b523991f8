import type { Clock } from '../../core/clock.js';
import { valueAt, withValueAt } from '../../core/text/paths.js';
import { checkCounts } from '../../store/helpers/document-fields.js';
import {
  fenceOf,
  type DocumentChanges,
  type DocumentFields,
  type DocumentJob,
  type DocumentJobStore,
  type DocumentWrite,
  type LockCall,
} from '../../store/documents.js';
import type { MemoryCollection, MemoryDocument } from '../collection.js';
import { findDocuments } from './find.js';

const timeOf = (value: unknown): number | null => (value instanceof Date ? value.getTime() : null);

export type Matches = (document: MemoryDocument) => boolean;

/** A place, once it was checked. */
export interface MemoryPlace {
  readonly where: string;
  readonly fields: DocumentFields;
  readonly matches: Matches;
  readonly read: (document: MemoryDocument) => DocumentJob<MemoryDocument>;
  readonly revisionOf: (document: MemoryDocument) => string;
}

/** The documents of one collection in memory. Each method does its work before its first await, so each is atomic. */
export function placedDocuments(
  collection: MemoryCollection,
  clock: Clock,
  { where, fields, matches, read, revisionOf }: MemoryPlace,
): DocumentJobStore<MemoryDocument> {
  const due = (document: MemoryDocument): unknown => valueAt(document, fields.sleepUntil);

  const inOrder = (): { readonly document: MemoryDocument; readonly at: number }[] =>
    collection
      .all()
      .flatMap((document) => {
        const at = timeOf(due(document));
        return at !== null && !Number.isNaN(at) && matches(document) ? [{ document, at }] : [];
      })
      .sort((a, b) => a.at - b.at);

  const change = (document: MemoryDocument, changes: DocumentChanges): void => {
    const { sleepUntil, autoRemove, failure } = changes;
    let changed = document;
    if (sleepUntil !== undefined) changed = withValueAt(changed, fields.sleepUntil, sleepUntil);
    if (autoRemove !== undefined) changed = withValueAt(changed, fields.autoRemove, autoRemove);
    if (failure !== undefined && fields.failure !== null)
      changed = withValueAt(changed, fields.failure, failure ?? undefined);
    collection.set(changed);
  };

  const write = ({ id, ifSleepUntil, ifRevision, ...rest }: DocumentWrite): boolean => {
    const document = collection.get(id);
    if (document === undefined) return false;
    if (ifSleepUntil !== undefined && timeOf(due(document)) !== timeOf(ifSleepUntil)) return false;
    if (ifRevision !== undefined && ifRevision !== revisionOf(document)) return false;
    if ('remove' in rest) return collection.delete(id);
    change(document, rest.changes);
    return true;
  };

  const mark = (document: MemoryDocument, until: Date, marks: boolean | undefined): MemoryDocument =>
    marks === true && fields.failure !== null
      ? withValueAt(document, `${fields.failure}.lockedUntil`, until)
      : document;

  const lockMany = (
    until: Date,
    limit: number,
    { marks, notAfter }: LockCall,
  ): DocumentJob<MemoryDocument>[] => {
    if (notAfter !== undefined && notAfter.getTime() < clock.now()) return [];
    const found = inOrder().filter(({ at }) => at <= clock.now());
    return found.slice(0, limit).map(({ document }) => {
      change(mark(document, until, marks), { sleepUntil: until });
      return read(document);
    });
  };

  return {
    open: async ({ counts }) => checkCounts(where, fields, counts),
    current: async (id) => {
      const document = collection.get(id);
      return document === undefined ? null : read(document);
    },
    lockNext: async (until, call) => lockMany(until, 1, call)[0],
    lockMany: async (until, { limit, ...call }) => lockMany(until, limit, call),
    update: async (id, changes, options) => write({ id, changes, ...fenceOf(options) }),
    remove: async (id, options) => write({ id, remove: true, ...fenceOf(options) }),
    settle: async (writes) => writes.map(write),
    renew: async (locks, sleepUntil, { marks }) =>
      locks.map((lock) => {
        if (!write({ ...lock, changes: { sleepUntil } })) return false;
        collection.set(mark(collection.get(lock.id) ?? {}, sleepUntil, marks));
        return true;
      }),
    look: async ({ withinMs, known }) => {
      const [first] = inOrder();
      const dueInMs = first === undefined ? Infinity : first.at - clock.now();
      const misfits = collection.all().flatMap((document) => {
        const value = due(document);
        const fits =
          value === null || value === undefined || (value instanceof Date && !Number.isNaN(value.getTime()));
        return fits || !matches(document) || known.includes(document['_id'])
          ? []
          : [{ id: document['_id'], value }];
      });
      return { dueInMs: dueInMs <= withinMs ? dueInMs : null, misfits };
    },
    count: async (query) =>
      findDocuments(collection.all().filter(matches).map(read), { ...query, direction: 1 }, clock.now())
        .documents.length,
    find: async (query) => findDocuments(collection.all().filter(matches).map(read), query, clock.now()),
    watch: async (wake) => {
      const end = collection.onChange(wake);
      return { direct: true, close: async () => end() };
    },
  };
}
