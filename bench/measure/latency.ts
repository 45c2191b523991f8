import type { ContenderName } from '../contenders/contender.js';
import { tried, type Bench, type Row } from '../lib/bench.js';
import { Child, inChild } from '../lib/child.js';
import { sinceMs, sleep } from '../lib/clock.js';
import { summary } from '../lib/stats.js';

const ENTRIES: readonly { readonly contender: ContenderName; readonly variant: string }[] = [
  { contender: 'raw', variant: 'stream' },
  { contender: 'tidemill', variant: 'default' },
  { contender: 'agenda', variant: 'stream' },
  { contender: 'pulse', variant: 'best' },
  { contender: 'mongodash', variant: 'reactive' },
  { contender: 'mongodb-cron', variant: 'loops1' },
];

export type Sent = Readonly<Record<number, { readonly called: string; readonly answered: string }>>;
export type Started = Readonly<Record<number, string>>;

/**
 * The delays from the call of `enqueue`, and from its answer, to the start of the handler. All times are from the
 * machine's monotonic clock.
 */
function delays(sent: Sent, started: Started): { fromCall: number[]; fromAnswer: number[]; missing: number } {
  const pairs = Object.entries(sent).map(([n, times]) => ({ ...times, start: started[Number(n)] }));
  const heard = pairs.filter((pair) => pair.start !== undefined);
  const since = (from: string, to: string | undefined): number => sinceMs(BigInt(from), BigInt(to ?? 0));
  return {
    fromCall: heard.map(({ called, start }) => since(called, start)),
    fromAnswer: heard.map(({ answered, start }) => since(answered, start)),
    missing: pairs.length - heard.length,
  };
}

export function delayFigures(sent: Sent, started: Started): Pick<Row, 'figures' | 'runs'> {
  const { fromCall, fromAnswer, missing } = delays(sent, started);
  const [call, answer] = [summary(fromCall), summary(fromAnswer)];
  const figures = {
    'p50 ms': call.p50,
    'p90 ms': call.p90,
    'p99 ms': call.p99,
    'max ms': call.max,
    'p50 ms after the answer': answer.p50,
    'p99 ms after the answer': answer.p99,
    samples: call.samples,
    'not run': missing,
  };
  return { figures, runs: [{ fromCall, fromAnswer }] };
}

export async function across(
  base: { uri: string; contender: string; variant: string; database: string },
  samples: number,
): Promise<{ sent: Sent; started: Started }> {
  const worker = new Child({ ...base, task: 'listen' });
  const producer = new Child({ ...base, task: 'produce', samples });
  try {
    await Promise.all([worker.hear('ready'), producer.hear('ready')]);
    await sleep(1_000);
    producer.say('go');
    const { value: sent } = await producer.hear<{ value: Sent }>('result');
    worker.say('stop');
    const { value: started } = await worker.hear<{ value: Started }>('result');
    await Promise.all([worker.end(), producer.end()]);
    return { sent, started };
  } finally {
    worker.kill();
    producer.kill();
  }
}

/** Sends one job every 100 to 200 ms, so that everything is idle when it arrives. */
export async function latency(bench: Bench): Promise<void> {
  for (const { contender, variant } of ENTRIES) {
    if (!bench.wants(contender)) continue;
    const important = ['raw', 'tidemill', 'agenda'].includes(contender);
    const samples = bench.quick ? 30 : important ? 300 : 100;
    const base = { uri: bench.uri, contender, variant };
    for (const section of ['latency, two processes', 'latency, one process']) {
      await tried(bench, { section, contender, variant }, async () => {
        const { sent, started } = await bench.within((database) =>
          section.endsWith('two processes')
            ? across({ ...base, database }, samples)
            : inChild<{ sent: Sent; started: Started }>({ ...base, database, task: 'alone', samples }),
        );
        const { figures, runs } = delayFigures(sent, started);
        bench.add({ section, contender, variant, figures, runs });
      });
    }
  }
}
