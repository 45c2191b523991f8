import type { Tidemill } from '../../src/index.js';
import { sleep } from './ground.js';
import { writeLine } from './journal.js';

/** A stop hands back what is left after `STOP_MS`; one that takes so much longer never ends. */
const STOP_MS = 5_000;
const OVERDUE_MS = 60_000;

/** What every worker process does: starts until it succeeds, stops when it is told to, and dies with its parent. */
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
      // The server may be away just now.
      await sleep(200);
    }
  }
}
