import type { AnyBulkWriteOperation, ClientSession, FindOptions } from 'mongodb';
import { StoreError } from '../../core/errors.js';
import type { Inserted, NewJob } from '../../store/port.js';
import { needTransactions, run, type Mongo } from '../context.js';
import { toDocument, toRecord, type JobDocument } from './document.js';
import { duplicatesOf, isTimeLimit, isUnconfirmed } from '../errors.js';
import { liveKey, rival, winners } from './winners.js';

/** A key that is taken and then free again this many times in a row is a fault, not a race. */
const TRIES = 50;
/** Other writes take less, if the replica set keeps up; an insert that takes longer waits for an open transaction. */
const BRIEFLY_MS = 500;
/** For one job at a time, after `BRIEFLY_MS` has passed already. */
const AT_ONCE_MS = 50;

/**
 * Tells whether this call stored the winner. An id that the store generated can only have been stored by an earlier try
 * of the same call; for an id of the caller's own, the creation time tells.
 */
function outcomeOf(
  job: NewJob,
  winner: JobDocument,
  document: JobDocument,
  isRepeated: boolean,
): Inserted['outcome'] {
  if (String(winner._id) !== String(document._id)) return 'existing';
  const isOwn = isRepeated && toRecord(winner).createdAt.getTime() === job.createdAt.getTime();
  return job.ownId !== true || isOwn ? 'created' : 'existing';
}

/** One call: its jobs as documents, and the result of each so far. */
interface Call {
  readonly jobs: readonly NewJob[];
  readonly documents: readonly JobDocument[];
  readonly answers: (Inserted | undefined)[];
  /** A statement was cut off, so documents without a result may be stored. */
  isRepeated: boolean;
}

const callOf = (mongo: Mongo, jobs: readonly NewJob[]): Call => ({
  jobs,
  documents: jobs.map((job) => toDocument(job, mongo.sharded)),
  answers: new Array<Inserted | undefined>(jobs.length).fill(undefined),
  isRepeated: false,
});

/** Returns the first of those with the same id, or the same name and unique key. */
function withoutTwins({ documents }: Call, positions: readonly number[]): readonly number[] {
  const seen = new Set<string>();
  return positions.filter((at) => {
    const { _id, name, uniqueKey } = documents[at] as JobDocument;
    const keys = [String(_id), ...(uniqueKey === undefined ? [] : [JSON.stringify([name, uniqueKey])])];
    const isTwin = keys.some((key) => seen.has(key));
    for (const key of keys) seen.add(key);
    return !isTwin;
  });
}

const openOf = ({ answers }: Call): number[] => [...answers.keys()].filter((at) => answers[at] === undefined);

export async function insert(mongo: Mongo, jobs: readonly NewJob[]): Promise<readonly Inserted[]> {
  const call = callOf(mongo, jobs);
  await insertOpen(mongo, call, openOf(call));
  return call.answers as readonly Inserted[];
}

/**
 * Inserts all jobs that can be stored now, and leaves out those whose unique key an open transaction holds. Tries all
 * of them together first. If that takes too long, inserts the jobs without a key together, and the others one by one.
 */
export async function insertFree(
  mongo: Mongo,
  jobs: readonly NewJob[],
): Promise<readonly (Inserted | undefined)[]> {
  const call = callOf(mongo, jobs);
  if (await insertedBriefly(mongo, call, openOf(call), BRIEFLY_MS)) return call.answers;
  const plain = openOf(call).filter((at) => isPlain(jobs[at] as NewJob));
  await insertOpen(mongo, call, plain);
  // A winner that a majority has is not the write of an open transaction.
  await readWinners(
    mongo,
    call,
    openOf(call),
    mongo.transactions ? { readConcern: { level: 'majority' } } : {},
  );
  for (const at of withoutTwins(call, openOf(call))) await insertedBriefly(mongo, call, [at], AT_ONCE_MS);
  return call.answers;
}

/** Returns false if one of these documents waits for an open transaction; some of the others may be stored. */
async function insertedBriefly(
  mongo: Mongo,
  call: Call,
  positions: readonly number[],
  maxTimeMS: number,
): Promise<boolean> {
  const mayWait = positions.some((at) => !isPlain(call.jobs[at] as NewJob));
  try {
    await insertOpen(mongo, call, positions, mayWait ? maxTimeMS : 0);
    return true;
  } catch (error) {
    const cause: unknown = error instanceof StoreError ? error.cause : undefined;
    if (!isTimeLimit(cause)) throw error;
    call.isRepeated = true;
    if (!isUnconfirmed(cause)) return false;
    // All that could be written was. A repeat waits for a majority to have it before the server refuses it.
    await insertOpen(
      mongo,
      call,
      openOf(call).filter((at) => positions.includes(at)),
    );
    return true;
  }
}

/** Inserts first and asks afterwards: the unique index decides, and the loser reads the winner. */
async function insertOpen(
  mongo: Mongo,
  call: Call,
  positions: readonly number[],
  maxTimeMS = 0,
): Promise<void> {
  const { documents, answers } = call;
  let open = positions;
  for (let tries = 0; open.length > 0 && tries < TRIES; tries += 1) {
    // Twins would only be refused; they get the result of the first of them.
    const batch = withoutTwins(call, open);
    const refused = await insertBatch(
      mongo,
      batch.map((index) => documents[index] as JobDocument),
      maxTimeMS,
    );
    const lost = new Set(refused.map((position) => batch[position] as number));
    for (const index of batch) {
      if (!lost.has(index))
        answers[index] = { job: toRecord(documents[index] as JobDocument), outcome: 'created' };
    }
    open = await readWinners(
      mongo,
      call,
      open.filter((index) => answers[index] === undefined),
    );
  }
  if (open.length === 0) return;
  throw new StoreError('enqueue: a unique key was taken and freed again many times in a row; try again.', {
    transient: true,
    outcomeUnknown: true,
  });
}

async function insertBatch(
  mongo: Mongo,
  documents: readonly JobDocument[],
  maxTimeMS: number,
): Promise<readonly number[]> {
  const limit = maxTimeMS === 0 ? {} : { maxTimeMS };
  return run(
    'enqueue',
    async () => {
      try {
        await mongo.jobs.insertMany([...documents] as never[], { ordered: false, ...limit });
        return [];
      } catch (error) {
        if (maxTimeMS > 0 && isUnconfirmed(error)) throw error;
        return duplicatesOf(error);
      }
    },
    true,
  );
}

/** Fills in the results of refused documents. Returns those whose winner is already gone, to be tried again. */
async function readWinners(
  mongo: Mongo,
  { jobs, documents, answers, isRepeated }: Call,
  refused: readonly number[],
  options: FindOptions = {},
): Promise<number[]> {
  if (refused.length === 0) return [];
  const lost = refused.map((index) => documents[index] as JobDocument);
  // Other jobs of the same call may have been stored, so the outcome is unknown if this fails.
  const winnerOf = await run('enqueue', () => winners(mongo, lost, options), true);
  return refused.filter((index) => {
    const document = documents[index] as JobDocument;
    const winner = winnerOf(document);
    if (winner === undefined) return true;
    const outcome = outcomeOf(jobs[index] as NewJob, winner, document, isRepeated);
    answers[index] = { job: toRecord(winner), outcome };
    return false;
  });
}

/**
 * Inserts inside a user's transaction. A duplicate key would abort all of it, so jobs with a unique key or an id of the
 * user's own are upserted: a race then causes a retryable conflict. Errors keep the driver's labels, by which
 * `withTransaction` decides to retry.
 */
export async function insertIn(
  mongo: Mongo,
  jobs: readonly NewJob[],
  session: ClientSession,
): Promise<readonly Inserted[]> {
  needTransactions(mongo);
  const documents = jobs.map((job) => toDocument(job, mongo.sharded));
  const stored = await storedIds(mongo, jobs, documents, session);
  const open = documents
    .map((_document, index) => index)
    .filter((index) => !stored.has(String(documents[index]?._id)));
  const operations = open.map((index) =>
    insertion(mongo, jobs[index] as NewJob, documents[index] as JobDocument),
  );
  const upserted =
    operations.length === 0
      ? {}
      : (await mongo.jobs.bulkWrite(operations, { session, ordered: true })).upsertedIds;
  const answers: Inserted[] = [];
  for (const [index, document] of documents.entries()) {
    const at = open.indexOf(index);
    const created = at >= 0 && (isPlain(jobs[index] as NewJob) || upserted[at] !== undefined);
    const winner = created ? document : await mongo.jobs.findOne(rival(document), { session });
    answers.push({ job: toRecord(winner ?? document), outcome: created ? 'created' : 'existing' });
  }
  return answers;
}

/** Only its own new id could conflict. */
const isPlain = (job: NewJob): boolean => job.uniqueKey === undefined && job.ownId !== true;

function insertion(mongo: Mongo, job: NewJob, document: JobDocument): AnyBulkWriteOperation<JobDocument> {
  if (isPlain(job)) return { insertOne: { document } };
  const part = mongo.sharded ? { part: document['part'] as number } : {};
  const { uniqueKey } = job;
  const filter =
    uniqueKey === undefined ? { _id: document._id, ...part } : { ...liveKey(job.name, uniqueKey), ...part };
  return { updateOne: { filter, update: { $setOnInsert: document as never }, upsert: true } };
}

/** Returns the ids that are already taken, of jobs that also have a unique key: their upsert looks for the key only. */
async function storedIds(
  mongo: Mongo,
  jobs: readonly NewJob[],
  documents: readonly JobDocument[],
  session: ClientSession,
): Promise<ReadonlySet<string>> {
  const both = documents.filter((_document, index) => {
    const job = jobs[index] as NewJob;
    return job.ownId === true && job.uniqueKey !== undefined;
  });
  if (both.length === 0) return new Set();
  const filter = { _id: { $in: both.map((document) => document._id) } };
  const rows = await mongo.jobs.find(filter, { session, projection: { _id: 1 } }).toArray();
  return new Set(rows.map((row) => String(row._id)));
}
