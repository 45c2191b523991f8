import type { Tidemill } from '../../src/index.js';
import { built } from '../lib/built.js';
import { nanos, sinceMs, sleep } from '../lib/clock.js';
import { deferred } from '../lib/deferred.js';
import { round } from '../lib/stats.js';
import { PLACES, type Place } from './places.js';
import type { Scale } from './run.js';

const SETTLE_MS = 20_000;
const WATCH_MS = 30_000;
const PER_SECOND = 20;
const BACKLOG = 10_000;
const NAMES = 20;

/**
 * One, ten and a hundred instances with connections of their own, all in this process: what they ask of the server while
 * they are idle, while few jobs come, and while there is a backlog. Every instance runs the same twenty names.
 */
export async function instances(scale: Scale): Promise<void> {
  for (const name of scale.on) {
    for (const count of [1, 10, scale.instances].filter((n) => n <= scale.instances)) {
      await using place = await PLACES[name]();
      const mills = await started(place, count);
      const variant = `${count} instances`;
      const add = (section: string, figures: Record<string, number>): void =>
        scale.add({ section, contender: name, variant, figures, runs: [] });
      await sleep(SETTLE_MS);
      add('idle instances', await watched(place, () => sleep(WATCH_MS)));
      add(`${PER_SECOND} jobs a second`, await watched(place, () => trickle(mills)));
      add(`a backlog of ${BACKLOG}`, await watched(place, () => backlog(mills), BACKLOG));
      await Promise.all(mills.map(({ mill }) => mill.stop()));
    }
  }
}

interface Running {
  readonly mill: Tidemill;
  /** Called for every job that the instance has run. */
  ran: () => void;
}

async function started(place: Place, count: number): Promise<Running[]> {
  const { Tidemill: Mill } = await built('index');
  const all: Running[] = [];
  for (let n = 0; n < count; n += 1) {
    const mill = new Mill({ store: await place.store({ connections: 3 }), logger: false, concurrency: 20 });
    const running: Running = { mill, ran: () => undefined };
    for (let at = 0; at < NAMES; at += 1) mill.job(`name-${at}`, () => running.ran());
    await mill.start();
    all.push(running);
  }
  return all;
}

async function watched(
  place: Place,
  work: () => Promise<unknown>,
  jobs?: number,
): Promise<Record<string, number>> {
  const [before, cpu, own, began] = [await place.traffic(), place.cpu(), process.cpuUsage(), nanos()];
  await work();
  const seconds = sinceMs(began) / 1_000;
  const after = await place.traffic();
  const { user, system } = process.cpuUsage(own);
  const statements = after.statements - before.statements;
  return {
    'statements/s': round(statements / seconds, 1),
    'kB/s sent': round((after.bytesOut - before.bytesOut) / 1_024 / seconds, 1),
    'server CPU %': round(((place.cpu() - cpu) / seconds) * 100, 1),
    'instances CPU %': round((user + system) / 1e4 / seconds, 1),
    ...(jobs === undefined
      ? {}
      : { 'jobs/s': round(jobs / seconds), 'statements/job': round(statements / jobs, 2) }),
  };
}

/** Enqueues at a steady pace from a producer of its own. */
async function trickle(mills: readonly Running[]): Promise<void> {
  const began = nanos();
  for (let n = 0; sinceMs(began) < WATCH_MS; n += 1) {
    await mills[0]!.mill.enqueue(`name-${n % NAMES}`, { n });
    await sleep(Math.max(0, ((n + 1) * 1_000) / PER_SECOND - sinceMs(began)));
  }
}

async function backlog(mills: readonly Running[]): Promise<void> {
  const end = deferred();
  let left = BACKLOG;
  for (const running of mills)
    running.ran = () => {
      left -= 1;
      if (left === 0) end.resolve();
    };
  await mills[0]!.mill.enqueueMany(
    Array.from({ length: BACKLOG }, (_, n) => ({ name: `name-${n % NAMES}`, data: { n } })),
  );
  await end.promise;
}
