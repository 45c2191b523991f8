/** What the tests of an application use; mongodash has it under `mongodash/testing`, too. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Collection, Document, Filter } from 'mongodb';
import { TidemillError, type TasksFilter } from '../../../index.js';
import { reactiveMill, sources } from '../reactive-tasks.js';
import { eachTask } from '../task-records.js';
import type { ReactiveTaskRecord } from '../types.js';

/** Source documents, and with them their tasks. */
export interface WhitelistRule {
  collection: string;
  /** Default: all documents. */
  filter?: Filter<Document>;
  /** Default: all tasks. */
  task?: string;
}

export type WhitelistResolution = 'skip' | 'matchAll' | Filter<ReactiveTaskRecord>;

/** Returns the tasks that rules mean, as a query on the records of one source. */
export async function resolveWhitelistFilter(
  whitelist: WhitelistRule[],
  sourceCollection: Pick<Collection, 'collectionName' | 'find'>,
): Promise<WhitelistResolution> {
  const meant: Filter<ReactiveTaskRecord>[] = [];
  for (const { collection, filter, task } of whitelist) {
    if (collection !== sourceCollection.collectionName) continue;
    if (filter === undefined && task === undefined) return 'matchAll';
    const found =
      filter === undefined
        ? undefined
        : await sourceCollection.find(filter, { projection: { _id: 1 } }).toArray();
    if (found?.length === 0) continue;
    meant.push({
      ...(task === undefined ? {} : { task }),
      ...(found === undefined ? {} : { sourceDocId: { $in: found.map(({ _id }) => _id) } }),
    });
  }
  return meant.length === 0 ? 'skip' : { $or: meant };
}

const ofSource = (collection: string): string[] =>
  [...sources].filter(([, source]) => source === collection).map(([task]) => task);

/** The same as filters of tasks; without rules, all tasks of this process. */
function filtersOf(whitelist: WhitelistRule[] = []): readonly TasksFilter[] {
  if (whitelist.length === 0) return sources.size === 0 ? [] : [{ task: [...sources.keys()] }];
  return whitelist.flatMap(({ collection, filter, task }) => {
    const names = ofSource(collection).filter((name) => task === undefined || name === task);
    if (names.length === 0) return [];
    return [{ task: names, ...(filter === undefined ? {} : { sourceDocFilter: filter }) }];
  });
}

export interface WaitUntilOptions {
  /** Default: 10,000. */
  timeoutMs?: number;
  /** Default: 50. */
  pollIntervalMs?: number;
  /** How long the condition must hold. Default: 0. */
  stabilityDurationMs?: number;
}

/** A longer pause than this, beyond the interval, is a debugger's. */
const JUMP_MS = 1_000;

/** Waits until a condition holds. A condition that throws does not hold. */
export async function waitUntil(
  condition: () => boolean | Promise<boolean>,
  { timeoutMs = 10_000, pollIntervalMs = 50, stabilityDurationMs = 0 }: WaitUntilOptions = {},
): Promise<void> {
  let deadline = Date.now() + timeoutMs;
  let since: number | undefined;
  for (;;) {
    const holds = await Promise.resolve()
      .then(condition)
      .catch(() => false);
    const now = Date.now();
    since = holds ? (since ?? now) : undefined;
    if (since !== undefined && now - since >= stabilityDurationMs) return;
    if (now > deadline)
      throw new TidemillError('TIMEOUT', `waitUntil: the condition did not hold within ${timeoutMs} ms.`);
    await sleep(pollIntervalMs);
    const paused = Date.now() - now - pollIntervalMs;
    if (paused > JUMP_MS) deadline += paused;
  }
}

export interface WaitUntilReactiveTasksIdleOptions extends WaitUntilOptions {
  whitelist?: WhitelistRule[];
}

/** Waits until no reactive task runs or is due soon. */
export async function waitUntilReactiveTasksIdle(
  options: WaitUntilReactiveTasksIdleOptions = {},
): Promise<void> {
  const { whitelist, ...given } = options;
  const waiting = { timeoutMs: 10_000, pollIntervalMs: 50, stabilityDurationMs: 200, ...given };
  const soonMs = waiting.timeoutMs + waiting.stabilityDurationMs + 100;
  const { tasks } = reactiveMill();
  const isIdle = async (filter: TasksFilter): Promise<boolean> => {
    const runAt = { to: new Date(Date.now() + soonMs) };
    const [due, running] = await Promise.all([
      tasks.count({ ...filter, status: 'pending', runAt }, { limit: 1 }),
      tasks.count({ ...filter, status: ['processing', 'processing_dirty'] }, { limit: 1 }),
    ]);
    return due + running === 0;
  };
  const filters = filtersOf(whitelist);
  await waitUntil(async () => (await Promise.all(filters.map(isIdle))).every(Boolean), waiting);
}

export interface AssertNoReactiveTaskErrorsOptions {
  /** Only failures from then on. */
  since: Date;
  whitelist?: WhitelistRule[];
  /** Messages that are expected: the whole text, or a pattern. */
  excludeErrors?: (string | RegExp)[];
}

/** Fails if a reactive task has failed. */
export async function assertNoReactiveTaskErrors(options: AssertNoReactiveTaskErrorsOptions): Promise<void> {
  const { since, whitelist, excludeErrors = [] } = options;
  const isExpected = (message: string): boolean =>
    excludeErrors.some((one) => (typeof one === 'string' ? one === message : one.test(message)));
  const found = new Map<string, Date>();
  for (const filter of filtersOf(whitelist)) {
    for await (const { task, sourceDocId, executionHistory = [] } of eachTask(filter)) {
      for (const { at, status, error = 'Unknown error' } of executionHistory) {
        if (status !== 'failed' || at < since || isExpected(error)) continue;
        found.set(`[${at.toISOString()}] Task '${task}' (Doc: ${String(sourceDocId)}): ${error}`, at);
      }
    }
  }
  if (found.size === 0) return;
  const lines = [...found].sort(([, a], [, b]) => a.getTime() - b.getTime()).map(([line]) => line);
  throw new TidemillError(
    'TASKS_FAILED',
    `Found ${found.size} unexpected reactive task errors:\n${lines.join('\n')}`,
  );
}
