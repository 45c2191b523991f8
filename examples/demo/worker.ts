import { setTimeout as sleep } from 'node:timers/promises';
import { Tidemill, type Logger } from 'tidemill';
import { buildReport, chargeCard, sendEmail, syncAccount, takePulse } from './jobs.js';
import type { Part, PartOptions } from './part.js';

/** One worker of the demo. */
export async function work({ name, store, tell }: PartOptions): Promise<Part> {
  // A short lease, so that the work of a killed worker is handed on while you watch. The default is 30 s.
  const mill = new Tidemill({ store, instanceId: name, leaseDuration: '3s', logger: listening(tell) });

  mill.work(sendEmail, { concurrency: 8 }, async ({ signal }) => {
    await sleep(20 + Math.random() * 60, undefined, { signal });
  });

  mill.work(buildReport, { concurrency: 2 }, async ({ data, progress, signal }) => {
    for (let page = 1; page <= data.pages; page += 1) {
      await sleep(300, undefined, { signal });
      progress(page / data.pages);
    }
  });

  mill.work(chargeCard, { concurrency: 4 }, async ({ data, attempt, signal }) => {
    await sleep(100 + Math.random() * 100, undefined, { signal });
    if (data.declined) throw new Error(`card ${data.card} was declined`);
    if (attempt === 1 && Math.random() < 0.25) throw new Error('the bank did not answer');
  });

  mill.work(syncAccount, { concurrency: 4 }, async ({ signal }) => {
    await sleep(400 + Math.random() * 400, undefined, { signal });
  });

  mill.work(takePulse, () => tell({ kind: 'pulse', count: 1 }));

  mill.on('job:retry', () => tell({ kind: 'retry', count: 1 }));
  mill.on('stale:recovered', ({ count }) => tell({ kind: 'recovered', count }));

  await mill.start();
  return { stop: (timeout) => mill.stop({ timeout }) };
}

/** A stop that ran out of time says in the log which jobs it gave back. The rest of the log is not for this screen. */
function listening(tell: PartOptions['tell']): Logger {
  const nothing = (): void => undefined;
  const warn = ({ jobs }: { jobs?: readonly string[] }): void => {
    if (jobs !== undefined) tell({ kind: 'handedBack', count: jobs.length });
  };
  return { debug: nothing, info: nothing, error: nothing, warn };
}
