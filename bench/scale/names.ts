import { built } from '../lib/built.js';
import { nanos, sinceMs } from '../lib/clock.js';
import { round } from '../lib/stats.js';
import { deferred } from '../lib/deferred.js';
import { PLACES, type Place } from './places.js';
import type { Scale } from './run.js';

const JOBS = 3_000;

/** The same jobs under ten names and under ten thousand. */
export async function names(scale: Scale): Promise<void> {
  for (const name of scale.on) {
    for (const count of [10, scale.names]) {
      await using place = await PLACES[name]();
      const figures = await measured(place, count);
      const variant = `${count.toLocaleString('en-US')} names`;
      scale.add({ section: 'names', contender: name, variant, figures, runs: [] });
    }
  }
}

async function measured(place: Place, count: number): Promise<Record<string, number>> {
  const { Tidemill } = await built('index');
  const mill = new Tidemill({ store: await place.store(), logger: false });
  const end = deferred();
  let ran = 0;
  for (let n = 0; n < count; n += 1)
    mill.job(`name-${n}`, () => {
      ran += 1;
      if (ran === JOBS) end.resolve();
    });
  const jobs = Array.from({ length: JOBS }, (_, n) => ({ name: `name-${(n * 7_919) % count}`, data: { n } }));
  const enqueueing = nanos();
  await mill.enqueueMany(jobs);
  const enqueuedMs = sinceMs(enqueueing);
  const [cpu, server, began] = [process.cpuUsage(), place.cpu(), nanos()];
  await mill.start();
  await end.promise;
  const { user, system } = process.cpuUsage(cpu);
  const figures = {
    'enqueueMany µs/job': round((enqueuedMs * 1_000) / JOBS),
    'jobs/s': round((JOBS / sinceMs(began)) * 1_000),
    'worker CPU µs/job': round((user + system) / JOBS),
    'server CPU µs/job': round(((place.cpu() - server) * 1e6) / JOBS),
  };
  await mill.stop();
  return figures;
}
