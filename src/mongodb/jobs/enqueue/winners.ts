/** Finds the jobs that hold the id, or the unique key, of jobs that were refused. */
import type { FindOptions } from 'mongodb';
import type { JobStatus } from '../../../core/records/job.js';
import type { Mongo } from '../../context.js';
import type { JobDocument } from '../document.js';

const LIVE = { $in: ['pending', 'processing'] satisfies JobStatus[] };
/**
 * Matches the live job of a unique key. The condition on the type lets the server see that its partial index applies.
 */
export const liveKey = (
  name: string,
  uniqueKey: string,
): { name: string; uniqueKey: object; status: object } => ({
  name,
  uniqueKey: { $eq: uniqueKey, $type: 'string' },
  status: LIVE,
});

/** Matches the job that holds the id or the unique key of a refused document. */
export function rival(document: JobDocument): object {
  if (document['uniqueKey'] === undefined) return { _id: document._id };
  return { $or: [{ _id: document._id }, liveKey(document.name, document['uniqueKey'] as string)] };
}

/** Most keys per query. */
const MOST = 500;

/** Returns a function that finds the job in the way of a document: the one with its id, or else with its unique key. */
export async function winners(
  { jobs }: Pick<Mongo, 'jobs'>,
  documents: readonly JobDocument[],
  options: FindOptions,
): Promise<(document: JobDocument) => JobDocument | undefined> {
  const byId = new Map<string, JobDocument>();
  const byKey = new Map<string, JobDocument>();
  for (let from = 0; from < documents.length; from += MOST) {
    const some = documents.slice(from, from + MOST);
    const sameId = await jobs.find({ _id: { $in: some.map(({ _id }) => _id) } }, options).toArray();
    for (const found of sameId) byId.set(String(found._id), found);
    for (const [name, keys] of keysByName(some)) {
      const live = { name, uniqueKey: { $in: [...keys], $type: 'string' as const }, status: LIVE };
      for (const found of await jobs.find(live, options).toArray()) byKey.set(keyOf(found), found);
    }
  }
  return (document) =>
    byId.get(String(document._id)) ??
    (document['uniqueKey'] === undefined ? undefined : byKey.get(keyOf(document)));
}

const keyOf = ({ name, uniqueKey }: JobDocument): string => JSON.stringify([name, uniqueKey]);

function keysByName(documents: readonly JobDocument[]): ReadonlyMap<string, ReadonlySet<string>> {
  const byName = new Map<string, Set<string>>();
  for (const { name, uniqueKey } of documents) {
    if (typeof uniqueKey !== 'string') continue;
    const keys = byName.get(name) ?? new Set();
    byName.set(name, keys.add(uniqueKey));
  }
  return byName;
}
