import { matchesFields } from '../../core/fields.js';
import type { DocumentJob, DocumentQuery, DocumentState, FoundDocuments } from '../../store/documents.js';
import type { MemoryDocument } from '../collection.js';

type Job = DocumentJob<MemoryDocument>;

const timeOf = ({ sleepUntil }: Job): number | null =>
  sleepUntil instanceof Date ? sleepUntil.getTime() : null;

function stateOf(job: Job, now: number): DocumentState {
  const at = timeOf(job);
  if (at !== null) return at <= now ? 'due' : 'waiting';
  return job.failure?.ended === true ? 'failed' : 'parked';
}

/** A text that is unique to the id: JSON, with bigints tagged. */
const keyOf = ({ id }: Job): string =>
  JSON.stringify(id, (_key, value: unknown) =>
    typeof value === 'bigint' ? { $bigint: value.toString() } : value,
  );

const within = (at: number, { from, to }: { from?: Date; to?: Date } = {}): boolean =>
  at >= (from?.getTime() ?? -Infinity) && at <= (to?.getTime() ?? Infinity);

export function findDocuments(
  jobs: readonly Job[],
  query: DocumentQuery,
  now: number,
): FoundDocuments<MemoryDocument> {
  const { states, keys, error, data, sleepUntil, direction, limit, after } = query;
  const matches = (job: Job): boolean =>
    (states?.includes(stateOf(job, now)) ?? true) &&
    (keys?.includes(keyOf(job)) ?? true) &&
    (error === undefined || job.failure?.reason.toLowerCase().includes(error.toLowerCase()) === true) &&
    (data === undefined || matchesFields(job.document, data)) &&
    (sleepUntil === undefined || within(timeOf(job) ?? Number.NaN, sleepUntil));
  const place = (job: Job): [number, string] => [timeOf(job) ?? 0, keyOf(job)];
  const order = ([a, x]: [number, string], [b, y]: [number, string]): number =>
    direction * (a - b || (x < y ? -1 : x > y ? 1 : 0));
  const start: [number, string] | undefined = after && [after.at?.getTime() ?? 0, after.key];
  const found = jobs
    .filter(matches)
    .filter((job) => start === undefined || order(place(job), start) > 0)
    .sort((a, b) => order(place(a), place(b)));
  return {
    documents: found.slice(0, limit).map((job) => ({ key: keyOf(job), job })),
    more: found.length > limit,
    partial: false,
  };
}
