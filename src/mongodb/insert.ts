import { BSON, type AnyBulkWriteOperation, type ClientSession } from 'mongodb';
import { StoreError } from '../core/errors.js';
import type { Inserted, NewJob } from '../store/port.js';
import { needTransactions, run, type Mongo } from './context.js';
import { toDocument, toRecord, type JobDocument } from './document.js';
import { duplicatesOf } from './errors.js';

const LIVE = { $in: ['pending', 'processing'] };
/** A key that was taken and is free again a moment later, this often in a row, is a fault and not a race. */
const TRIES = 50;

/** Naming the type as well lets the unique index serve it: without that, its condition is not seen to hold. */
export const liveKey = (
  name: string,
  uniqueKey: string,
): { name: string; uniqueKey: object; status: object } => ({
  name,
  uniqueKey: { $eq: uniqueKey, $type: 'string' },
  status: LIVE,
});

/** Who holds the id or the unique key of a document that was refused. */
function rival(document: JobDocument): object {
  if (document['uniqueKey'] === undefined) return { _id: document._id };
  return { $or: [{ _id: document._id }, liveKey(document.name, document['uniqueKey'] as string)] };
}

/** An id that nobody gave can only have been stored by an earlier try of the same call. */
const outcomeOf = (job: NewJob, document: JobDocument, winner: JobDocument): Inserted['outcome'] =>
  job.ownId !== true && String(winner._id) === String(document._id) ? 'created' : 'existing';

/** Insert first, ask afterwards: the unique index decides, and the loser reads the winner. */
export async function insert(mongo: Mongo, jobs: readonly NewJob[]): Promise<readonly Inserted[]> {
  const documents = jobs.map((job) => toDocument(job, mongo.sharded));
  const answers = new Array<Inserted>(jobs.length);
  let open = documents.map((_document, index) => index);
  for (let tries = 0; open.length > 0 && tries < TRIES; tries += 1) {
    const batch = open;
    const refused = await insertBatch(
      mongo,
      batch.map((index) => documents[index] as JobDocument),
    );
    const lost = new Set(refused.map((position) => batch[position] as number));
    for (const index of batch) {
      if (!lost.has(index))
        answers[index] = { job: toRecord(documents[index] as JobDocument), outcome: 'created' };
    }
    open = await readWinners(mongo, jobs, documents, answers, [...lost]);
  }
  if (open.length === 0) return answers;
  throw new StoreError('enqueue: a unique key was taken and free again many times in a row; try again.', {
    transient: true,
    outcomeUnknown: true,
  });
}

async function insertBatch(mongo: Mongo, documents: readonly JobDocument[]): Promise<readonly number[]> {
  return run(
    'enqueue',
    async () => {
      try {
        await mongo.jobs.insertMany([...documents] as never[], { ordered: false });
        return [];
      } catch (error) {
        return duplicatesOf(error);
      }
    },
    true,
  );
}

/** Fills in the answers of refused documents; those whose winner is gone already are to be tried again. */
async function readWinners(
  mongo: Mongo,
  jobs: readonly NewJob[],
  documents: readonly JobDocument[],
  answers: Inserted[],
  refused: readonly number[],
): Promise<number[]> {
  const again: number[] = [];
  // Many callers may have lost to the same one: it is read once.
  const winners = new Map<string, JobDocument | null>();
  // Others of the same call may have been stored: where this fails, nobody knows what is there.
  const read = async (): Promise<void> => {
    for (const index of refused) {
      const filter = rival(documents[index] as JobDocument);
      const text = BSON.EJSON.stringify(filter);
      const winner = winners.get(text) ?? (await mongo.jobs.findOne(filter));
      winners.set(text, winner);
      if (winner === null) again.push(index);
      else {
        const outcome = outcomeOf(jobs[index] as NewJob, documents[index] as JobDocument, winner);
        answers[index] = { job: toRecord(winner), outcome };
      }
    }
  };
  await run('enqueue', read, true);
  return again;
}

/**
 * Inside a user's transaction a duplicate key would abort all of it, so keyed jobs are upserted: a race gives a
 * retryable conflict instead. Errors keep the driver's labels, by which `withTransaction` tries again.
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

/** Nothing but its own new id could be in its way. */
const isPlain = (job: NewJob): boolean => job.uniqueKey === undefined && job.ownId !== true;

function insertion(mongo: Mongo, job: NewJob, document: JobDocument): AnyBulkWriteOperation<JobDocument> {
  if (isPlain(job)) return { insertOne: { document } };
  const part = mongo.sharded ? { part: document['part'] as number } : {};
  const { uniqueKey } = job;
  const filter =
    uniqueKey === undefined ? { _id: document._id, ...part } : { ...liveKey(job.name, uniqueKey), ...part };
  return { updateOne: { filter, update: { $setOnInsert: document as never }, upsert: true } };
}

/** Ids that are taken already, of jobs that have a unique key as well: their upsert looks for the key only. */
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
