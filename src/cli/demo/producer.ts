import { setTimeout as sleep } from 'node:timers/promises';
import { Tidemill } from '../../index.js';
import { buildReport, chargeCard, PULSE_CRON, sendEmail, syncAccount, takePulse } from './jobs.js';
import type { Part, PartOptions } from './crew.js';
import type { Shop } from './shop/shop.js';
import { shopOf } from './shop/shops.js';

const ROUND_MS = 250;

const anyOf = (count: number): number => Math.floor(Math.random() * count);

/** A producer of the demo. It never calls `start`, so it claims nothing. */
export async function produce({ store, space, tell }: PartOptions): Promise<Part> {
  const mill = new Tidemill({ store, logger: false });
  const shop = shopOf(mill, store, space);
  const end = new AbortController();
  // Every producer makes the same call; together they create one schedule.
  await mill.schedule(PULSE_CRON, takePulse);

  const rounds = (async (): Promise<void> => {
    for (let turn = 0; !end.signal.aborted; turn += 1) {
      await Promise.all([ask(mill, turn, tell), sell(shop, turn)]).catch((error: unknown) => {
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

/** Enqueues jobs four times a second, with a burst of emails now and then. */
async function ask(mill: Tidemill, turn: number, tell: PartOptions['tell']): Promise<void> {
  const mails = turn % 40 === 20 ? 150 : 5 + anyOf(8);
  await mill.enqueueMany(
    Array.from({ length: mails }, (_, i) => ({
      name: sendEmail.name,
      data: { to: `reader-${String(turn)}-${String(i)}@example.com` },
    })),
  );
  await mill.enqueue(chargeCard, { card: String(1000 + anyOf(9000)), declined: Math.random() < 0.05 });
  if (turn % 8 === 0) await mill.enqueue(buildReport, { pages: 4 + anyOf(8) });
  const account = anyOf(8);
  const { outcome } = await mill.enqueue(
    syncAccount,
    { account },
    { uniqueKey: `account-${String(account)}` },
  );
  if (outcome === 'existing') tell({ kind: 'repeat', count: 1 });
}

/** Plain writes of an application that knows nothing of Tidemill. */
async function sell(shop: Shop, turn: number): Promise<void> {
  if (turn % 2 === 0) await shop.place(1 + anyOf(2));
  else await shop.pay(1 + anyOf(2));
}
