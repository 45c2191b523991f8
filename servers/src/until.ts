import { setTimeout as sleep } from 'node:timers/promises';
import { ServerError } from './errors.js';

const pollMs = 25;

/** Asks again until there is an answer. `what` completes the sentence "Waited … ms for". */
export async function until<T>(
  what: string,
  ask: () => Promise<T | undefined>,
  timeoutMs = 30_000,
): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    if (performance.now() > deadline) {
      throw new ServerError(`Waited ${timeoutMs} ms for ${what}.`, {
        fix: 'see whether the machine is overloaded (`uptime`), and run it again',
      });
    }
    await sleep(pollMs);
  }
}

/** Like `Promise.all`, but waits for every promise first, so that a failure leaves nothing half started. */
export async function allEnded<T>(promises: readonly Promise<T>[]): Promise<T[]> {
  const results = await Promise.allSettled(promises);
  return results.map((result) => {
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  });
}
