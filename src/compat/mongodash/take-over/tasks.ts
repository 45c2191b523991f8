import { BSON, type Db, type Document } from 'mongodb';

/** What became of the records of one reactive task. */
export interface TaskCount {
  readonly task: string;
  readonly collection: string;
  /** Records of mongodash. */
  readonly total: number;
  /** Records that were written here; the others were here before. */
  readonly written: number;
  /** Handled, and the document is unchanged: it does not run again. */
  readonly handled: number;
  /** Waiting, or interrupted: it runs here. */
  readonly unfinished: number;
  /** Its document has changed since, or is gone: planning decides. */
  readonly changed: number;
  /** The new code had planned the document before the take-over: that record stays, and so does mongodash's. */
  readonly made: number;
}

/** Where the records of a task and its documents are. */
export interface SourceOfTask {
  /** mongodash's task collection. */
  readonly records: string;
  readonly collection: string;
}

export interface TakeOverTask {
  readonly task: string;
  readonly source: SourceOfTask;
  /** Filter and projection, as mongodash has stored them. */
  readonly trigger: Document;
  readonly into: string;
  readonly dryRun: boolean;
  readonly move: boolean;
  /** Throws if an instance of mongodash lives. Called before each deletion. */
  readonly refuseLive: () => Promise<void>;
}

/** Numbers keep their types, and snapshots compare byte by byte. */
export const PROMOTE_NOTHING = {
  promoteValues: false,
  promoteLongs: false,
  promoteBuffers: false,
  bsonRegExp: true,
} as const;

const BATCH = 500;
/** The version of task records that is written here; a newer reader understands it. */
const VERSION = 1;

/** The fields that the user's projection must not have. */
const [ID, THEIRS, MATCHES] = ['__tidemill_id', '__tidemill_theirs', '__tidemill_matches'] as const;

const isWhole = (projection: Document | null | undefined): boolean =>
  projection === null || projection === undefined || Object.keys(projection).length === 0;

/** An inclusion as it was stored: numbers are not promoted. */
const isInclusion = (value: unknown): boolean => value === true || Number(value) === 1;

/** What mongodash compares: `{ 'a.b': 1 }` is `{ a: { b: '$a.b' } }`. */
function snapshotOfMongodash(projection: Document): Document {
  const snapshot: Document = {};
  for (const [path, value] of Object.entries(projection)) {
    const keys = path.split('.');
    let at = snapshot;
    for (const key of keys.slice(0, -1)) at = at[key] = (at[key] ?? {}) as Document;
    at[keys.at(-1) ?? path] = isInclusion(value) ? `$${path}` : (value as unknown);
  }
  return snapshot;
}

/** Reads each document once: what mongodash would see in it, and what would be seen here. */
function pipelineOf({ trigger }: TakeOverTask, ids: readonly unknown[]): Document[] {
  const { filter, watchProjection } = trigger as { filter?: unknown; watchProjection?: Document | null };
  const matches = { $cond: [filter ?? true, true, false] };
  const matched = { $match: { _id: { $in: ids } } };
  if (isWhole(watchProjection))
    return [matched, { $replaceWith: { id: '$_id', theirs: '$$ROOT', ours: '$$ROOT', matches } }];
  const projection = watchProjection as Document;
  const without = (input: unknown, field: string): Document => ({ $unsetField: { field, input } });
  return [
    matched,
    { $set: { [THEIRS]: snapshotOfMongodash(projection), [MATCHES]: matches } },
    { $project: { ...projection, [ID]: '$_id', [THEIRS]: 1, [MATCHES]: 1 } },
    {
      $replaceWith: {
        id: `$${ID}`,
        theirs: `$${THEIRS}`,
        matches: `$${MATCHES}`,
        ours: [ID, THEIRS, MATCHES].reduce<unknown>(without, '$$ROOT'),
      },
    },
  ];
}

const bytesOf = (value: unknown): string =>
  Buffer.from(BSON.serialize({ value: value ?? null })).toString('base64');

function historyOf(entries: unknown): Document[] {
  return ((entries ?? []) as Document[]).map((entry, at) => {
    const {
      at: finishedAt,
      status,
      durationMs,
      error,
    } = entry as { at: Date; status: string; durationMs: unknown; error?: string };
    const ms = Number(durationMs);
    return {
      attempt: at + 1,
      status,
      startedAt: new Date(finishedAt.getTime() - ms),
      finishedAt,
      durationMs: ms,
      instanceId: 'mongodash',
      ...(error === undefined ? {} : { error: { name: 'Error', message: error } }),
    };
  });
}

/** What mongodash writes in each record. */
interface TheirRecord {
  readonly task: string;
  readonly sourceDocId: unknown;
  readonly status: string;
  readonly nextRunAt?: Date | null;
  readonly dueAt?: Date;
  readonly createdAt: Date;
  readonly updatedAt: Date;
}

/** A record of mongodash as it is stored here. `document` is undefined if it is gone. */
function recordOf(record: Document, document: Document | undefined, isSame: boolean, now: Date): Document {
  const { task, sourceDocId, status, nextRunAt, dueAt, createdAt, updatedAt } = record as TheirRecord;
  const hasEnded = status === 'completed' || status === 'failed';
  const waitsUntil = status === 'pending' ? nextRunAt : null;
  const scheduledAt = waitsUntil ?? (hasEnded ? (dueAt ?? updatedAt) : now);
  const attempts = Number(record['attempts'] ?? 0);
  const isDebounced = status === 'pending' && attempts === 0;
  const kept = ['firstErrorAt', 'lastError', 'lastSuccess', 'lastFinalizedAt'];
  return {
    _id: { task, id: sourceDocId },
    v: VERSION,
    task,
    sourceDocId,
    status: hasEnded ? status : 'pending',
    scheduledAt,
    initialScheduledAt: dueAt ?? scheduledAt,
    // A claim removes it: the delay of a retry is no debounce.
    ...(isDebounced ? { waitingSince: dueAt ?? scheduledAt } : {}),
    attempts,
    // Without a snapshot, planning takes the document for changed.
    matched: isSame && document?.['matches'] === true,
    lastObservedValues: isSame ? (document?.['ours'] as unknown) : null,
    ...Object.fromEntries(
      kept.filter((key) => (record[key] ?? null) !== null).map((key) => [key, record[key] as unknown]),
    ),
    executionHistory: historyOf(record['executionHistory']),
    createdAt,
    updatedAt,
    lockedAt: null,
  };
}

/** Inserts records, apart from those that are there. Returns how many were new. */
async function insert(db: Db, into: string, records: readonly Document[]): Promise<number> {
  try {
    return (await db.collection(into).insertMany([...records], { ordered: false })).insertedCount;
  } catch (error) {
    const { writeErrors, result } = error as {
      writeErrors?: readonly { code?: number }[];
      result?: { insertedCount?: number };
    };
    if (writeErrors?.every(({ code }) => code === 11_000) !== true) throw error;
    return result?.insertedCount ?? 0;
  }
}

/**
 * Returns the keys of those records whose place another one has: planned by the new code, which was started too early.
 * What was taken over has the time at which mongodash made its record.
 */
async function madeByNewCode(
  db: Db,
  into: string,
  records: readonly Document[],
): Promise<ReadonlySet<string>> {
  const createdAt = new Map(records.map((record) => [bytesOf(record['_id']), record['createdAt'] as Date]));
  const filter = { _id: { $in: records.map((record) => record['_id'] as never) } };
  const rows = await db
    .collection(into, PROMOTE_NOTHING)
    .find(filter, { projection: { createdAt: 1 } })
    .toArray();
  const foreign = rows.filter(
    (row) => (row['createdAt'] as Date).getTime() !== createdAt.get(bytesOf(row._id))?.getTime(),
  );
  return new Set(foreign.map((row) => bytesOf(row._id)));
}

/** Takes over the records of one task, batch by batch, and yields the counts so far. */
export async function* takeOverTask(db: Db, asked: TakeOverTask): AsyncGenerator<TaskCount> {
  const { task, source, into, dryRun, move } = asked;
  const records = db.collection(source.records, PROMOTE_NOTHING);
  const documents = db.collection(source.collection, PROMOTE_NOTHING);
  let count = {
    task,
    collection: source.collection,
    total: 0,
    written: 0,
    handled: 0,
    unfinished: 0,
    changed: 0,
    made: 0,
  };
  yield count;
  for (let after: unknown; ;) {
    const beyond =
      after === undefined ? { $type: 'objectId' as const } : { $type: 'objectId' as const, $gt: after };
    const batch: Document[] = await records
      .find({ task, _id: beyond as never })
      .sort({ _id: 1 })
      .limit(BATCH)
      .toArray();
    if (batch.length === 0) return;
    after = batch.at(-1)?.['_id'];
    const ids = batch.map((record): unknown => record['sourceDocId']);
    const found = new Map(
      (await documents.aggregate(pipelineOf(asked, ids)).toArray()).map((row) => [bytesOf(row['id']), row]),
    );
    const now = new Date();
    const made = batch.map((record) => {
      const document = found.get(bytesOf(record['sourceDocId']));
      const isSame =
        document !== undefined && bytesOf(document['theirs']) === bytesOf(record['lastObservedValues']);
      return recordOf(record, document, isSame, now);
    });
    const written = dryRun ? 0 : await insert(db, into, made);
    const foreign = await madeByNewCode(db, into, made);
    const ended = made.filter(({ status }) => status !== 'pending');
    const handled = ended.filter(({ lastObservedValues }) => lastObservedValues !== null).length;
    count = {
      ...count,
      total: count.total + batch.length,
      written: count.written + written,
      handled: count.handled + handled,
      unfinished: count.unfinished + made.length - ended.length,
      changed: count.changed + ended.length - handled,
      made: count.made + foreign.size,
    };
    if (move && !dryRun) {
      await asked.refuseLive();
      const taken = batch.filter((_record, at) => !foreign.has(bytesOf(made[at]?.['_id'])));
      await records.deleteMany({ _id: { $in: taken.map((record) => record['_id'] as never) } });
    }
    yield count;
  }
}
