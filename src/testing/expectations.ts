import { AssertionError } from 'node:assert';
import { inspect, isDeepStrictEqual } from 'node:util';
import { checkKeys, checkText, show } from '../core/options.js';
import type { Job, JobDefinition, JobStatus } from '../index.js';
import type { AnyMill } from './idle.js';

export interface Expected {
  /** The exact number of jobs. Default: at least one. */
  readonly times?: number;
  /** Only jobs with this status, or one of these. Default: any status. */
  readonly status?: JobStatus | readonly JobStatus[];
  /** Only jobs with this unique key. Default: any. */
  readonly uniqueKey?: string;
  /** Only jobs with this key, by which limits per key count them. Default: any. */
  readonly key?: string | number;
  /** Only jobs that are due at exactly this time. Default: any. */
  readonly runAt?: Date;
}

const SHOWN_AT_MOST = 10;

/** Plain objects may have further fields; everything else must be equal. */
function contains(actual: unknown, wanted: unknown): boolean {
  if (!isPlain(wanted) || !isPlain(actual)) return isDeepStrictEqual(actual, wanted);
  return Object.entries(wanted).every(([key, value]) => contains(actual[key], value));
}

const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;

/**
 * Asserts that jobs of this name were enqueued whose data contains `data`; objects may have further fields. Returns
 * these jobs, oldest first. Otherwise throws an AssertionError that shows the jobs of that name.
 */
export async function expectEnqueued<T = unknown>(
  mill: AnyMill,
  target: string | JobDefinition<T>,
  data?: Partial<NoInfer<T>>,
  expected: Expected = {},
): Promise<readonly Job<T>[]> {
  const { found, all, name } = await search(mill, 'expectEnqueued', target, data, expected);
  const { times } = expected;
  if (times === undefined ? found.length > 0 : found.length === times) return found as readonly Job<T>[];
  const count = times === undefined ? 'at least one job' : `${String(times)} jobs`;
  throw refusal(`expected ${count} ${show(name)}${wish(data)}, found ${String(found.length)}.`, data, all);
}

/** Asserts that no such job was enqueued. */
export async function expectNotEnqueued<T = unknown>(
  mill: AnyMill,
  target: string | JobDefinition<T>,
  data?: Partial<NoInfer<T>>,
  expected: Omit<Expected, 'times'> = {},
): Promise<void> {
  const { found, name } = await search(mill, 'expectNotEnqueued', target, data, expected);
  if (found.length === 0) return;
  throw refusal(
    `expected no job ${show(name)}${wish(data)}, found ${String(found.length)}.`,
    undefined,
    found,
  );
}

async function search(
  mill: AnyMill,
  where: string,
  target: string | { readonly name: string },
  data: unknown,
  expected: Expected,
): Promise<{ found: readonly Job[]; all: readonly Job[]; name: string }> {
  checkKeys(where, expected, ['times', 'status', 'uniqueKey', 'key', 'runAt']);
  const name = checkText(where, 'name', typeof target === 'string' ? target : target.name);
  const { status, uniqueKey, key, runAt } = expected;
  const all = await everything(mill, name);
  const statuses = status === undefined ? undefined : [status].flat();
  const found = all.filter(
    (job) =>
      (data === undefined || contains(job.data, data)) &&
      (statuses?.includes(job.status) ?? true) &&
      (uniqueKey === undefined || job.uniqueKey === uniqueKey) &&
      (key === undefined || (job.limitKey ?? '') === String(key)) &&
      (runAt === undefined || job.nextRunAt.getTime() === runAt.getTime()),
  );
  return { found, all, name };
}

async function everything(mill: AnyMill, name: string): Promise<readonly Job[]> {
  const jobs: Job[] = [];
  for (let cursor: string | undefined; ;) {
    const page = await mill.jobs.find(
      { name },
      { limit: 1_000, sort: { createdAt: 1 }, ...(cursor === undefined ? {} : { cursor }) },
    );
    jobs.push(...page.items);
    if (page.next === null) return jobs;
    cursor = page.next;
  }
}

const shown = (data: unknown): string =>
  inspect(data, { depth: 4, breakLength: Infinity, maxStringLength: 200 });

const keyOf = ({ limitKey }: Job): string => (limitKey === undefined ? '' : `, key ${show(limitKey)}`);

const wish = (data: unknown): string => (data === undefined ? '' : ` with ${shown(data)}`);

function refusal(message: string, expected: unknown, jobs: readonly Job[]): AssertionError {
  const lines = jobs
    .slice(0, SHOWN_AT_MOST)
    .map((job) => `  ${job.status}, due ${job.nextRunAt.toISOString()}${keyOf(job)}: ${shown(job.data)}`);
  const rest = jobs.length > SHOWN_AT_MOST ? [`  and ${String(jobs.length - SHOWN_AT_MOST)} more`] : [];
  const there =
    jobs.length === 0 ? ['There is none of that name.'] : ['Those of that name:', ...lines, ...rest];
  return new AssertionError({
    message: [message, ...there].join('\n'),
    expected,
    actual: jobs.map(({ data }) => data),
    operator: 'expectEnqueued',
  });
}
