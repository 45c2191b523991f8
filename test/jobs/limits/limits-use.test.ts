import { expect, it } from 'vitest';
import { Tidemill } from '../../../src/index.js';
import { until } from '../../../src/testing/conformance/fixtures.js';
import { eachStore } from '../../support/stores.js';

/**
 * Long beside the round trips between two runs, so that a permit that lies idle longer than those shows. Runs grow longer
 * while no span is full, since round trips take long on a busy machine; a permit that is never used shows all the same.
 */
const RUN_MS = { first: 500, most: 8_000, grows: 1.25 };
const CONCURRENCY = 4;
/** What round trips of some hundred milliseconds leave unused, the next grant may catch up with. */
const RATE = { limit: 10, per: '1s', burst: 10 } as const;
const PER_MS = 1_000;
/** So many are due at least: more than both limits let start while the next ones are enqueued. */
const DUE = 100;
/** So much of a limit is used in some span. limits-use.memory.test.ts has the figures of all of the time, in virtual time. */
const USED = 0.95;
/** Of so much time. A busy machine delays the answer, and does not change it: the test waits until some span is this full. */
const SPAN_MS = 4_000;

/** Adds up how long handlers run, also of those that still do. */
class Busy {
  #running = 0;
  #sum = 0;
  #at = performance.now();

  get ms(): number {
    const now = performance.now();
    this.#sum += this.#running * (now - this.#at);
    this.#at = now;
    return this.#sum;
  }

  change(by: 1 | -1): void {
    this.#sum = this.ms;
    this.#running += by;
  }
}

eachStore('use of limits', ({ open }) => {
  it('reaches 95 percent of a concurrency and of a rate for four seconds on end, on two mills', async () => {
    const store = open();
    const busy = new Busy();
    const starts: number[] = [];
    let ended = 0;
    let runMs = RUN_MS.first;
    const mills = [0, 1].map(() => new Tidemill({ store, logger: false, concurrency: 20 }));
    for (const mill of mills) {
      mill.job('capped', { concurrency: CONCURRENCY, limits: { concurrency: CONCURRENCY } }, async () => {
        busy.change(1);
        await new Promise((resolve) => setTimeout(resolve, runMs));
        busy.change(-1);
        ended += 1;
      });
      mill.job('paced', { concurrency: 10, limits: { rate: RATE } }, () => {
        starts.push(performance.now());
      });
    }
    const enqueued = { capped: 0, paced: 0 };
    // Not more than is needed, since a backlog that grows costs a busy machine time.
    const fill = async (): Promise<void> => {
      const due = { capped: enqueued.capped - ended, paced: enqueued.paced - starts.length };
      for (const name of ['capped', 'paced'] as const) {
        if (due[name] > DUE / 2) continue;
        enqueued[name] += DUE;
        await mills[0]?.enqueueMany(Array.from({ length: DUE }, () => ({ name, data: {} })));
      }
    };
    await fill();
    await Promise.all(mills.map((mill) => mill.start()));
    const samples: { readonly at: number; readonly busyMs: number }[] = [];
    const most = { capped: 0, paced: 0 };
    let filledAt = performance.now();
    await until(
      () => `a span of ${String(SPAN_MS)} ms is used, at most ${JSON.stringify(most)}`,
      async () => {
        if (performance.now() - filledAt > PER_MS) {
          filledAt = performance.now();
          await fill();
          if (samples.length > 0) runMs = Math.min(RUN_MS.most, runMs * RUN_MS.grows);
        }
        // Now, and not before the call: what runs is measured at the same moment.
        const now = performance.now();
        samples.push({ at: now, busyMs: busy.ms });
        const earlier = samples.findLast(({ at }) => at <= now - SPAN_MS);
        if (earlier === undefined) return false;
        const spanMs = now - earlier.at;
        const used = (busy.ms - earlier.busyMs) / (CONCURRENCY * spanMs);
        most.capped = Math.max(most.capped, used);
        const started = starts.filter((at) => at > earlier.at).length;
        most.paced = Math.max(most.paced, started / ((RATE.limit * spanMs) / PER_MS));
        return most.capped > USED && most.paced > USED;
      },
    );
    await Promise.all(mills.map((mill) => mill.stop({ timeout: 2 * runMs })));
    expect(most.capped).toBeLessThanOrEqual(1.01);
  });
});
