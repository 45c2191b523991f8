import type { Tidemill } from '../../src/index.js';
import type { Store } from '../../src/store/port.js';
import { built } from '../lib/built.js';
import { nanos, sinceMs } from '../lib/clock.js';
import { deferred } from '../lib/deferred.js';
import { median, round } from '../lib/stats.js';
import { PLACES, type Place } from './places.js';
import type { Scale } from './run.js';

const TIMES = 15;
const DUE = 2_000;

const TWO_HOURS_MS = 2 * 3_600_000;

/** What a page of the dashboard asks for; a dashboard of its own each time, since it keeps answers for a moment. */
async function page(mill: Tidemill, path: string): Promise<void> {
  const { createDashboard } = await built('dashboard');
  const dashboard = createDashboard({ mill, authorize: () => ({ rights: ['view', 'payload'] }) });
  const response = await dashboard.fetch(new Request(`http://localhost/api/${path}`));
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  await response.text();
  dashboard.close();
}

type Probes = Readonly<Record<string, (mill: Tidemill, store: Store) => Promise<unknown>>>;

/** What a person or an instance asks of a full table. */
const PROBES: Probes = {
  enqueue: (mill) => mill.enqueue('noop', { n: 0 }, { delay: '1d' }),
  'newest jobs': (mill) => mill.jobs.find({}, { limit: 50 }),
  'newest of a name': (mill) => mill.jobs.find({ name: 'noop' }, { limit: 50 }),
  'completed, latest first': (mill) =>
    mill.jobs.find({ status: 'completed' }, { sort: { updatedAt: -1 }, limit: 50 }),
  'failed of a name': (mill) => mill.jobs.find({ name: 'noop', status: 'failed' }, { limit: 50 }),
  'pending, next first': (mill) =>
    mill.jobs.find({ status: 'pending' }, { sort: { nextRunAt: 1 }, limit: 50 }),
  'count of pending': (mill) => mill.jobs.count({ status: 'pending' }),
  stats: (mill) => mill.jobs.stats(),
  'page: overview': (mill) => page(mill, 'overview'),
  'page: jobs': (mill) => page(mill, 'work?kind=jobs'),
  'page: failures': (mill) => page(mill, 'failures?kind=jobs'),
  'metrics scrape': (mill) => mill.getPrometheusMetrics(),
  'sweep with nothing expired': (_mill, store) => Promise.resolve(store.jobs.sweep?.(new Date())),
};

/** The same questions and the same backlog in an empty table and in a full one. */
export async function full(scale: Scale): Promise<void> {
  for (const name of scale.on) {
    await using place = await PLACES[name]();
    const empty = await asked(place);
    await place.fill('finished', scale.jobs);
    await place.fill('future', scale.jobs);
    await place.settle();
    const filled = await asked(place);
    for (const [what, ms] of Object.entries(filled)) {
      const figures = { 'empty ms': round(empty[what]!, 2), 'full ms': round(ms, 2) };
      const section = `${scale.jobs.toLocaleString('en-US')} finished and as many future jobs`;
      scale.add({ section, contender: name, variant: what, figures, runs: [] });
    }
  }
}

/** The median time of each probe, in milliseconds; of the backlog, the time for all of it. */
async function asked(place: Place): Promise<Record<string, number>> {
  const { Tidemill: Mill } = await built('index');
  const store = await place.store();
  const mill = new Mill({ store, logger: false, concurrency: 100 });
  const took: Record<string, number> = {};
  for (const [what, probe] of Object.entries(PROBES)) {
    const times: number[] = [];
    for (let turn = 0; turn < TIMES; turn += 1) {
      const began = nanos();
      await probe(mill, store);
      times.push(sinceMs(began));
    }
    took[what] = median(times);
  }
  took[`${DUE} jobs run`] = await drained(mill);
  if (store.jobs.sweep !== undefined) {
    const began = nanos();
    await store.jobs.sweep(new Date(Date.now() + TWO_HOURS_MS));
    took[`sweep of ${DUE} expired jobs`] = sinceMs(began);
  }
  await mill.stop();
  return took;
}

async function drained(mill: Tidemill): Promise<number> {
  let ran = 0;
  const done = deferred();
  mill.job('due', { concurrency: 100, retention: { completed: '1h' } }, () => {
    ran += 1;
    if (ran === DUE) done.resolve();
  });
  await mill.enqueueMany(Array.from({ length: DUE }, () => ({ name: 'due', data: {} })));
  const began = nanos();
  await mill.start();
  await done.promise;
  return sinceMs(began);
}
