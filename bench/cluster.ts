/**
 * What a cluster and many names cost: calls of ten idle instances beside jobs that they do not run, and CPU time per job
 * and per wake-up with 10 to 10,000 names. On the memory store, so that only the engine is measured.
 *
 * npx tsx bench/cluster.ts
 */
import { Tidemill } from '../src/index.js';
import { memory } from '../src/memory/index.js';
import { record } from './lib/report.js';

const lines: string[] = [];
function say(line: string): void {
  lines.push(line);
  console.log(line);
}

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

async function foreignJobs(): Promise<void> {
  const store = memory();
  const { jobs } = store;
  const [claim, peek] = [jobs.claim.bind(jobs), jobs.peek.bind(jobs)];
  let calls = 0;
  jobs.claim = (request) => {
    calls += 1;
    return claim(request);
  };
  jobs.peek = (names) => {
    calls += 1;
    return peek(names);
  };
  for (let n = 0; n < 10; n += 1) {
    const mill = new Tidemill({ store, logger: false });
    mill.job('own', () => undefined);
    await mill.start();
  }
  const producer = new Tidemill({ store, logger: false });
  await producer.enqueue('foreign', {});
  await sleep(200);
  const before = calls;
  for (let n = 0; n < 50; n += 1) {
    await producer.enqueue('foreign', {});
    await sleep(10);
  }
  say(`50 foreign jobs: ten instances claim and peek ${String(calls - before)} times`);
}

async function cpuPerJob(): Promise<void> {
  for (const names of [10, 1_000, 10_000]) {
    const mill = new Tidemill({ store: memory(), logger: false });
    let done = 0;
    for (let n = 0; n < names; n += 1) mill.job(`name-${String(n)}`, () => void (done += 1));
    await mill.start();
    const began = process.cpuUsage();
    const jobs = 300;
    for (let n = 0; n < jobs; n += 1) await mill.enqueue(`name-${String(n % names)}`, {});
    while (done < jobs) await sleep(5);
    const { user, system } = process.cpuUsage(began);
    say(`${String(names)} names: ${((user + system) / 1_000 / jobs).toFixed(2)} ms of CPU per job`);
    await mill.stop();
  }
}

/** All slots are busy, and every name has a job for tomorrow. */
async function cpuPerWakeUp(): Promise<void> {
  for (const names of [500, 5_000]) {
    const mill = new Tidemill({ store: memory(), logger: false, concurrency: 1, shutdownTimeout: 0 });
    for (let n = 0; n < names; n += 1) mill.job(`name-${String(n)}`, () => sleep(100_000));
    const items = Array.from({ length: names }, (_, n) => ({
      name: `name-${String(n)}`,
      data: {},
      delay: 86_400_000,
    }));
    await mill.enqueueMany(items);
    await mill.start();
    await mill.enqueue('name-0', {});
    await sleep(200);
    const began = process.cpuUsage();
    const jobs = 5;
    for (let n = 0; n < jobs; n += 1) {
      await mill.enqueue('name-1', {});
      await sleep(30);
    }
    const { user, system } = process.cpuUsage(began);
    say(
      `${String(names)} names, no free slot: ${((user + system) / 1_000 / jobs).toFixed(1)} ms of CPU per wake-up`,
    );
  }
}

await foreignJobs();
await cpuPerJob();
await cpuPerWakeUp();
record('cluster', { lines });
process.exit(0);
