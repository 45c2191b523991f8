import { setTimeout as sleep } from 'node:timers/promises';
import { Tidemill } from 'tidemill';
import { buildReport, chargeCard, PULSE_CRON, sendEmail, syncAccount, takePulse } from './jobs.js';
import type { Part, PartOptions } from './part.js';

const ROUND_MS = 250;

const anyOf = (count: number): number => Math.floor(Math.random() * count);

/** One producer of the demo. It never calls `start`, so it claims nothing. */
export async function produce({ store, tell }: PartOptions): Promise<Part> {
  const mill = new Tidemill({ store, logger: false });
  const end = new AbortController();
  // Every producer makes the same call; together they make one schedule.
  await mill.schedule(PULSE_CRON, takePulse);

  const rounds = (async (): Promise<void> => {
    for (let turn = 0; !end.signal.aborted; turn += 1) {
      await round(mill, turn, tell).catch((error: unknown) => {
        if (!end.signal.aborted) console.error(error);
      });
      await sleep(ROUND_MS, undefined, { signal: end.signal }).catch(() => undefined);
    }
  })();

  return {
    stop: async () => {
      end.abort();
      await rounds;
      await mill.stop();
    },
  };
}

/** Four a second, with a burst of mails now and then. */
async function round(mill: Tidemill, turn: number, tell: PartOptions['tell']): Promise<void> {
  const mails = turn % 40 === 20 ? 150 : 5 + anyOf(8);
  await mill.enqueueMany(
    Array.from({ length: mails }, (_, i) => ({
      name: sendEmail.name,
      data: { to: `reader-${turn}-${i}@example.com` },
    })),
  );
  await mill.enqueue(chargeCard, { card: String(1000 + anyOf(9000)), declined: Math.random() < 0.05 });
  if (turn % 8 === 0) await mill.enqueue(buildReport, { pages: 4 + anyOf(8) });
  const account = anyOf(8);
  const { outcome } = await mill.enqueue(syncAccount, { account }, { uniqueKey: `account-${account}` });
  if (outcome === 'existing') tell({ kind: 'repeat', count: 1 });
}
