import type { Contender } from '../contenders/contender.js';
import type { Assignment } from '../lib/child.js';
import { nanos, sinceMs, sleep } from '../lib/clock.js';
import { round } from '../lib/stats.js';
import type { Parent } from '../lib/task.js';

/** Starts to count what is asked of the server. The returned function ends that and returns the counts by kind. */
export type Counting = () => () => Readonly<Record<string, number>>;

interface TaskContext {
  readonly assignment: Assignment;
  readonly counting: Counting;
  readonly contender: Contender;
  readonly parent: Parent;
}

type Task = (context: TaskContext) => Promise<unknown>;

/** Single calls, `inFlight` of them at any time. */
const enqueue: Task = async ({ assignment, contender }) => {
  const [jobs, inFlight] = [Number(assignment['jobs']), Number(assignment['inFlight'])];
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < jobs) {
      next += 1;
      await contender.enqueue({ n: next });
    }
  };
  const began = nanos();
  await Promise.all(Array.from({ length: inFlight }, lane));
  return { perSecond: round(jobs / (sinceMs(began) / 1_000)) };
};

const enqueueMany: Task = async ({ assignment, contender }) => {
  const [jobs, batch] = [Number(assignment['jobs']), Number(assignment['batch'])];
  if (contender.enqueueMany === undefined) return { perSecond: null };
  const began = nanos();
  for (let from = 0; from < jobs; from += batch) {
    await contender.enqueueMany(Array.from({ length: batch }, (_, index) => ({ n: from + index })));
  }
  return { perSecond: round(jobs / (sinceMs(began) / 1_000)) };
};

const fill: Task = async ({ assignment, contender }) => {
  await contender.fill(Number(assignment['jobs']));
};

/** Works until told to stop. Reports how many handlers have run, and at the end when they ran. */
const work: Task = async ({ contender, parent }) => {
  const startedAt: bigint[] = [];
  parent.say('ready');
  await parent.hear('go');
  const cpu = process.cpuUsage();
  const began = nanos();
  const reporting = setInterval(() => parent.say('count', { count: startedAt.length }), 20);
  const stopped = parent.hear('stop');
  const finished = parent.hear('check').then(async () => {
    while (!(await contender.finished())) await sleep(5);
    parent.say('finished', { at: String(nanos()) });
  });
  await contender.start(() => void startedAt.push(nanos()));
  await stopped;
  clearInterval(reporting);
  void finished;
  const { user, system } = process.cpuUsage(cpu);
  return {
    began: String(began),
    count: startedAt.length,
    firstMs: startedAt[0] === undefined ? null : round(sinceMs(began, startedAt[0]), 1),
    tenths: tenths(startedAt),
    cpuSeconds: round((user + system) / 1e6, 2),
    extra: contender.extra?.() ?? {},
  };
};

/** Jobs per second in each tenth of the handlers that ran here. */
export function tenths(startedAt: readonly bigint[]): number[] {
  const size = Math.floor(startedAt.length / 10);
  if (size < 10) return [];
  return Array.from({ length: 10 }, (_, index) => {
    const [from, to] = [
      startedAt[index * size]!,
      startedAt[Math.min((index + 1) * size, startedAt.length - 1)]!,
    ];
    return round(size / (sinceMs(from, to) / 1_000));
  });
}

/** Records when the handler of each payload started; the producer records when it was sent. */
const listen: Task = async ({ contender, parent }) => {
  const started: Record<number, string> = {};
  await contender.start(({ n }) => (started[n] = String(nanos())));
  parent.say('ready');
  await parent.hear('stop');
  return started;
};

/** Sends one job at a time, with pauses in which everything becomes idle; records the call and its answer. */
const produce: Task = async ({ assignment, contender, parent }) => {
  parent.say('ready');
  await parent.hear('go');
  return send(Number(assignment['samples']), contender);
};

async function send(
  samples: number,
  contender: Contender,
): Promise<Record<number, { called: string; answered: string }>> {
  const sent: Record<number, { called: string; answered: string }> = {};
  for (let n = 0; n < samples; n += 1) {
    await sleep(100 + Math.random() * 100);
    const called = String(nanos());
    await contender.enqueue({ n });
    sent[n] = { called, answered: String(nanos()) };
  }
  await sleep(2_000);
  return sent;
}

/** Producer and worker in one process. */
const alone: Task = async ({ assignment, contender }) => {
  const started: Record<number, string> = {};
  await contender.start(({ n }) => (started[n] ??= String(nanos())));
  await sleep(1_000);
  return { sent: await send(Number(assignment['samples']), contender), started };
};

/** Counts what an idle worker asks of the server. The driver's own monitoring is not included. */
const idle: Task = async ({ assignment, counting, contender }) => {
  await contender.start(() => undefined);
  await sleep(Number(assignment['settleMs']));
  const counted = counting();
  await sleep(Number(assignment['watchMs']));
  const commands = counted();
  const total = Object.values(commands).reduce((sum, one) => sum + one, 0);
  return { perSecond: round(total / (Number(assignment['watchMs']) / 1_000), 2), commands };
};

/** Sends batches at a steady rate until told to stop; returns the number of jobs. */
const trickle: Task = async ({ assignment, contender, parent }) => {
  const [perSecond, batch] = [Number(assignment['perSecond']), Number(assignment['batch'])];
  const stop = new AbortController();
  void parent.hear('stop').then(() => stop.abort());
  const began = nanos();
  let sent = 0;
  while (!stop.signal.aborted) {
    await contender.enqueueMany?.(Array.from({ length: batch }, (_, index) => ({ n: sent + index })));
    sent += batch;
    await sleep(Math.max(0, (sent / perSecond) * 1_000 - sinceMs(began)));
  }
  return sent;
};

/** Samples the heap after a forced collection, every `every` jobs; the process needs --expose-gc. */
const memory: Task = async ({ assignment, contender, parent }) => {
  const [jobs, every] = [Number(assignment['jobs']), Number(assignment['every'])];
  const samples: { jobs: number; heapMb: number; rssMb: number }[] = [];
  const mb = (bytes: number): number => round(bytes / 2 ** 20, 2);
  let count = 0;
  await new Promise<void>((resolve, reject) => {
    const run = (): void => {
      count += 1;
      if (count % every !== 0) return;
      globalThis.gc?.();
      const { heapUsed, rss } = process.memoryUsage();
      samples.push({ jobs: count, heapMb: mb(heapUsed), rssMb: mb(rss) });
      parent.say('count', { count });
      if (count === jobs) resolve();
    };
    contender.start(run).then(() => parent.say('ready'), reject);
  });
  return samples;
};

export const tasks: Readonly<Record<string, Task>> = {
  enqueue,
  enqueueMany,
  fill,
  work,
  listen,
  produce,
  alone,
  idle,
  trickle,
  memory,
};
