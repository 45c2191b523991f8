import type { AnyBulkWriteOperation, ClientSession, FindOptions } from 'mongodb';
import { StoreError } from '../../../core/errors.js';
import type { Inserted, NewJob } from '../../../store/port.js';
import { afterTransaction, send, sendAfter, type Message } from '../../cluster/messages.js';
import { dueOf } from '../../cluster/silent-writers.js';
import { needOpenTransaction, needTransactions, run, type Mongo } from '../../context.js';
import { toDocument, toRecord, type JobDocument } from '../document.js';
import { loadExisting } from './parts.js';
import { duplicatesOf, isDuplicate, isTimeLimit, isUnconfirmed } from '../../errors.js';
import { markKeys, type Mark } from '../../limits/keys/document.js';
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

const documentOf = (mongo: Mongo, job: NewJob): JobDocument =>
  toDocument(job, mongo.sharded, mongo.wakes !== undefined);

const callOf = (mongo: Mongo, jobs: readonly NewJob[]): Call => ({
  jobs,
  documents: jobs.map((job) => documentOf(mongo, job)),
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

/** Positions of jobs that may change another one. They come last, in the order of the call. */
const placedOf = (call: Call): number[] =>
  openOf(call).filter((at) => call.jobs[at]?.onExisting !== undefined);

const insertedOf = (call: Call): number[] =>
  openOf(call).filter((at) => call.jobs[at]?.onExisting === undefined);

export async function insert(mongo: Mongo, jobs: readonly NewJob[]): Promise<readonly Inserted[]> {
  const call = callOf(mongo, jobs);
  await insertOpen(mongo, call, insertedOf(call));
  for (const at of placedOf(call))
    call.answers[at] = await run('enqueue', () => placed(mongo, jobs[at] as NewJob, {}), true);
  await announce(mongo, call);
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
  const placing = placedOf(call);
  if (placing.length < jobs.length) await insertAllFree(mongo, call);
  for (const at of placing) call.answers[at] = await placeFree(mongo, jobs[at] as NewJob);
  await announce(mongo, call);
  return call.answers;
}

type Manner = Parameters<Awaited<ReturnType<typeof loadExisting>>['place']>[2];

const placed = async (mongo: Mongo, job: NewJob, manner: Manner): Promise<Inserted> =>
  (await loadExisting()).place(mongo, job, manner);

/** Undefined if an open transaction holds a document in the way. All steps may be repeated. */
async function placeFree(mongo: Mongo, job: NewJob): Promise<Inserted | undefined> {
  try {
    return await run('enqueue', () => placed(mongo, job, { maxTimeMS: BRIEFLY_MS }), true);
  } catch (error) {
    if (error instanceof StoreError && isTimeLimit(error.cause)) return undefined;
    throw error;
  }
}

/** The jobs that are to wake others, as a message. It names them if each of them says how many of its name there are. */
const wakeOf = (documents: readonly JobDocument[]): Message | undefined => {
  const waking = documents.filter((document) => document['wake'] !== undefined);
  const [first] = waking;
  if (first === undefined) return undefined;
  const due = waking.flatMap(({ name, wake }) => {
    const count = dueOf(wake);
    return count === undefined ? [] : [[name, count] as const];
  });
  const named = due.length === waking.length ? { due } : {};
  return { kind: 'jobs', key: first._id, name: first.name, ...named };
};

/** The keys of what waits now. */
const marksOf = (answers: readonly (Inserted | undefined)[]): readonly Mark[] =>
  answers.flatMap((answer) => {
    const { name, status, limitKey, nextRunAt } = answer?.job ?? {};
    if (name === undefined || limitKey === undefined || nextRunAt === undefined) return [];
    return status === 'pending' ? [{ name, key: limitKey, from: nextRunAt }] : [];
  });

/** Offers the keys of what was stored to claims, and tells idle instances. */
async function announce(mongo: Mongo, { documents, answers }: Call): Promise<void> {
  // A repeat of a call whose answer was lost finds its jobs, and has to mark their keys all the same.
  const marks = marksOf(answers);
  if (marks.length > 0) await run('enqueue', () => markKeys(mongo, marks), true);
  const isNews = (at: number): boolean => !['existing', undefined].includes(answers[at]?.outcome);
  const message = wakeOf(documents.filter((_document, at) => isNews(at)));
  if (message !== undefined) await send(mongo, message);
}

async function insertAllFree(mongo: Mongo, call: Call): Promise<void> {
  const { jobs } = call;
  if (await insertedBriefly(mongo, call, insertedOf(call), BRIEFLY_MS)) return;
  const plain = insertedOf(call).filter((at) => isPlain(jobs[at] as NewJob));
  await insertOpen(mongo, call, plain);
  // A winner that a majority has is not the write of an open transaction.
  await readWinners(
    mongo,
    call,
    insertedOf(call),
    mongo.transactions ? { readConcern: { level: 'majority' } } : {},
  );
  for (const at of withoutTwins(call, insertedOf(call))) await insertedBriefly(mongo, call, [at], AT_ONCE_MS);
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
  const [only] = documents;
  return run(
    'enqueue',
    async () => {
      try {
        // The driver sends the same command, and does less for it than for a bulk of one.
        if (only !== undefined && documents.length === 1 && maxTimeMS === 0) {
          await mongo.jobs.insertOne(only);
          return [];
        }
        await mongo.jobs.insertMany([...documents] as never[], { ordered: false, ...limit });
        return [];
      } catch (error) {
        if (maxTimeMS > 0 && isUnconfirmed(error)) throw error;
        return documents.length === 1 && isDuplicate(error) ? [0] : duplicatesOf(error);
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
  needOpenTransaction(session);
  const documents = jobs.map((job) => documentOf(mongo, job));
  const isPlaced = (index: number): boolean => jobs[index]?.onExisting !== undefined;
  const stored = await storedIds(mongo, jobs, documents, session);
  const open = documents
    .map((_document, index) => index)
    .filter((index) => !stored.has(String(documents[index]?._id)) && !isPlaced(index));
  const operations = open.map((index) =>
    insertion(mongo, jobs[index] as NewJob, documents[index] as JobDocument),
  );
  const upserted =
    operations.length === 0
      ? {}
      : (await mongo.jobs.bulkWrite(operations, { session, ordered: true })).upsertedIds;
  const answers: Inserted[] = [];
  for (const [index, document] of documents.entries()) {
    if (isPlaced(index)) {
      answers.push(await placed(mongo, jobs[index] as NewJob, { session }));
      continue;
    }
    const at = open.indexOf(index);
    const created = at >= 0 && (isPlain(jobs[index] as NewJob) || upserted[at] !== undefined);
    const winner = created ? document : await mongo.jobs.findOne(rival(document), { session });
    answers.push({ job: toRecord(winner ?? document), outcome: created ? 'created' : 'existing' });
  }
  const message = wakeOf(documents);
  const marks = marksOf(answers);
  if (marks.length > 0) markAfter(mongo, session, marks, message);
  else if (message !== undefined) sendAfter(mongo, session, message);
  return answers;
}

/** Marks keys outside the transaction, where no other process waits for them. Until then, `repairKeys` finds the jobs. */
function markAfter(
  mongo: Mongo,
  session: ClientSession,
  marks: readonly Mark[],
  message: Message | undefined,
): void {
  afterTransaction(session, async () => {
    await markKeys(mongo, marks);
    if (message !== undefined) await send(mongo, message);
  });
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
