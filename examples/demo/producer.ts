// One producer process of the demo. It never calls `start`, so it claims nothing.
import { setTimeout as sleep } from 'node:timers/promises';
import { Tidemill } from 'tidemill';
import { openStore, tell, untilTold } from './child.js';
import { buildReport, chargeCard, PULSE_CRON, sendEmail, syncAccount, takePulse } from './jobs.js';

const mill = new Tidemill({ store: openStore(), logger: false });
const end = new AbortController();
untilTold(mill, () => end.abort());

const anyOf = (count: number): number => Math.floor(Math.random() * count);

/** Four rounds a second, with a burst of mails now and then. */
async function round(turn: number): Promise<void> {
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

// Every producer makes the same call; together they make one schedule.
await mill.schedule(PULSE_CRON, takePulse);
tell({ kind: 'ready' });
for (let turn = 0; !end.signal.aborted; turn += 1) {
  await round(turn).catch((error: unknown) => {
    if (!end.signal.aborted) console.error(error);
  });
  await sleep(250);
}
