/** A quick self-test: how fast jobs are enqueued, run and started on one store. */
import { performance } from 'node:perf_hooks';
import { Tidemill, type Store } from '../index.js';

/** One measurement. */
export interface Measure {
  readonly what: string;
  /** Jobs per second; absent if single jobs were timed. */
  readonly perSecond?: number;
  readonly p50Ms?: number;
  readonly p99Ms?: number;
  /** What the figure means, for people. */
  readonly means: string;
}

export interface BenchOptions {
  /** Opens another connection to the same store. */
  readonly open: () => Promise<Store>;
  readonly jobs: number;
  readonly signal: AbortSignal;
  readonly tell: (text: string) => void;
}

const NAME = 'tidemill-bench';
const SINGLES = 200;
const LATENCIES = 100;
const BULK = 1_000;

/** Takes each measurement once, one after the other. The store must be empty, and is left full. */
export async function bench({ open, jobs, signal, tell }: BenchOptions): Promise<readonly Measure[]> {
  await using producer = new Tidemill({ store: await open(), logger: false });
  const measures: Measure[] = [];
  const steps = [
    () => oneByOne(producer, Math.min(SINGLES, jobs)),
    () => atOnce(producer, Math.min(BULK, jobs)),
    () => inBulk(producer, jobs),
    () => processed(producer, open),
    () => latency(producer, open),
  ];
  // The first call creates tables or indexes, which no figure should include.
  await producer.jobs.stats();
  for (const [index, step] of steps.entries()) {
    signal.throwIfAborted();
    tell(`${String(index + 1)} of ${String(steps.length)}`);
    measures.push(await step());
  }
  return measures;
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const from = performance.now();
  await work();
  return performance.now() - from;
}

function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

const spread = (times: readonly number[]): { p50Ms: number; p99Ms: number } => {
  const sorted = [...times].sort((a, b) => a - b);
  return { p50Ms: quantile(sorted, 0.5), p99Ms: quantile(sorted, 0.99) };
};

const data = (i: number): object => ({ number: i, to: 'somebody@example.com' });

async function oneByOne(mill: Tidemill, count: number): Promise<Measure> {
  const times: number[] = [];
  for (let i = 0; i < count; i += 1) times.push(await timed(() => mill.enqueue(NAME, data(i))));
  const perSecond = (count / times.reduce((sum, one) => sum + one, 0)) * 1_000;
  return {
    what: 'enqueue, one at a time',
    perSecond,
    ...spread(times),
    means: 'one durable write each: a round trip to the server and its disk',
  };
}

async function atOnce(mill: Tidemill, count: number): Promise<Measure> {
  const ms = await timed(() =>
    Promise.all(Array.from({ length: count }, (_, i) => mill.enqueue(NAME, data(i)))),
  );
  return {
    what: 'enqueue, concurrently',
    perSecond: (count / ms) * 1_000,
    means: 'concurrent calls share a write, as under load',
  };
}

async function inBulk(mill: Tidemill, count: number): Promise<Measure> {
  const batches = Array.from({ length: Math.ceil(count / BULK) }, (_, b) =>
    Array.from({ length: Math.min(BULK, count - b * BULK) }, (_one, i) => ({ name: NAME, data: data(i) })),
  );
  const ms = await timed(async () => {
    for (const batch of batches) await mill.enqueueMany(batch);
  });
  return {
    what: `enqueueMany, ${String(BULK)} at a time`,
    perSecond: (count / ms) * 1_000,
    means: 'imports and fan-outs',
  };
}

/** Runs all pending jobs on one instance, with handlers that do nothing. */
async function processed(producer: Tidemill, open: () => Promise<Store>): Promise<Measure> {
  const count = await producer.jobs.count({ name: NAME, status: 'pending' });
  await using worker = new Tidemill({
    store: await open(),
    logger: false,
    instanceId: 'tidemill-bench',
    concurrency: 100,
  });
  let done = 0;
  const all = new Promise<void>((resolve) => {
    worker.job(NAME, { concurrency: 100 }, () => {
      done += 1;
      if (done === count) resolve();
    });
  });
  await worker.start();
  const ms = await timed(() => all);
  return {
    what: `run ${count.toLocaleString('en-US')} jobs, one process`,
    perSecond: (count / ms) * 1_000,
    means: 'jobs claimed, run and recorded, with empty handlers',
  };
}

/**
 * Times single jobs from the call of `enqueue` to the handler of another mill on its own connection, with no other
 * load.
 */
async function latency(producer: Tidemill, open: () => Promise<Store>): Promise<Measure> {
  await using worker = new Tidemill({ store: await open(), logger: false, instanceId: 'tidemill-bench' });
  let begun = (): void => undefined;
  worker.job(`${NAME}-latency`, () => begun());
  await worker.start();
  const times: number[] = [];
  for (let i = 0; i < LATENCIES; i += 1) {
    const started = new Promise<void>((resolve) => (begun = resolve));
    times.push(
      await timed(async () => {
        await producer.enqueue(`${NAME}-latency`, data(i));
        await started;
      }),
    );
  }
  return {
    what: 'from enqueue to handler',
    ...spread(times),
    means: 'to an idle worker on another connection, woken by the store',
  };
}
