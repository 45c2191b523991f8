import type { ReactiveName } from '../../contenders/reactive/contender.js';
import { tried, type Bench } from '../../lib/bench.js';
import type { Child } from '../../lib/child.js';
import { nanos, sleep } from '../../lib/clock.js';
import { delayFigures, type Sent } from '../latency.js';
import { ended, instance, Scene } from './instance.js';
import type { Reacted } from './tasks.js';

const ENTRIES: readonly { contender: ReactiveName; variant: string; samples: number }[] = [
  { contender: 'raw', variant: 'stream1000', samples: 100 },
  { contender: 'tidemill', variant: 'default', samples: 200 },
  { contender: 'mongodash', variant: 'tuned100', samples: 100 },
];

/** Writes one document at a time, with pauses in which everything becomes idle. */
async function produce(scene: Scene, samples: number): Promise<Sent> {
  const sent: Record<number, { called: string; answered: string }> = {};
  for (let n = 0; n < samples; n += 1) {
    await sleep(100 + Math.random() * 100);
    const called = String(nanos());
    await scene.source.insertOne({ _id: n, data: { n } });
    sent[n] = { called, answered: String(nanos()) };
  }
  await sleep(2_000);
  return sent;
}

/**
 * Uses one instance that plans and works, or two: the first plans and runs no handler, the second runs handlers and
 * does not plan. A third process writes.
 */
async function measured(
  bench: Bench,
  { contender, variant, samples }: (typeof ENTRIES)[number],
  database: string,
  elsewhere: boolean,
): Promise<{ sent: Sent; reacted: Reacted }> {
  const request = { contender, variant, database, debounce: 0 };
  const children: Child[] = [];
  try {
    if (elsewhere) children.push(await instance(bench, { ...request, runs: false }));
    const worker = await instance(bench, request);
    children.push(worker);
    for (const child of children) child.say('go');
    await sleep(1_000);
    const scene = await Scene.of(bench, database, contender);
    const sent = await produce(scene, bench.quick ? 30 : samples);
    const reacted = await ended(worker);
    if (reacted.leads === elsewhere)
      throw new Error(`the instance that runs handlers ${elsewhere ? 'leads' : 'does not lead'}`);
    return { sent, reacted };
  } finally {
    for (const child of children) child.kill();
  }
}

/** From the write of a document to the first line of its handler, with a debounce of 0. */
export async function reactiveLatency(bench: Bench): Promise<void> {
  for (const section of ['reactive latency, leader', 'reactive latency, another instance']) {
    const elsewhere = section.endsWith('another instance');
    for (const entry of ENTRIES) {
      const { contender, variant } = entry;
      if (!bench.wants(contender) || (elsewhere && contender === 'raw')) continue;
      await tried(bench, { section, contender, variant }, async () => {
        const { sent, reacted } = await bench.within((database) =>
          measured(bench, entry, database, elsewhere),
        );
        const { figures, runs } = delayFigures(sent, reacted.started);
        bench.add({ section, contender, variant, figures, runs });
      });
    }
  }
}
