import type { Tidemill } from '../../src/index.js';
import { sleep } from './chaos-database.js';
import { writeLine } from './journal.js';

/** A stop hands back what is left after `STOP_MS`; a stop that takes this much longer never ends. */
const STOP_MS = 5_000;
const OVERDUE_MS = 60_000;

/** What every worker process does: retry the start until it succeeds, stop when told to, and die with its parent. */
export async function live(mill: Tidemill, file: string, close: () => Promise<void>): Promise<void> {
  process.on('SIGTERM', () => {
    setTimeout(() => {
      writeLine(file, { what: 'overdue' });
      process.exit(1);
    }, OVERDUE_MS);
    void mill
      .stop({ timeout: STOP_MS })
      .then(close)
      .then(() => process.exit(0));
  });
  process.on('disconnect', () => process.exit(1));
  if (!process.connected) process.exit(1);
  for (;;) {
    try {
      await mill.start();
      return;
    } catch {
      // The server may be down at the moment.
      await sleep(200);
    }
  }
}
