import { setTimeout } from 'node:timers/promises';
import type { Tidemill } from 'tidemill';
import { sendEmail } from '@/lib/jobs';

/** Called by each process that works. `replace`: the dev server may call it again on the mill that it kept. */
export function addHandlers(mill: Tidemill): void {
  mill.work(sendEmail, { concurrency: 10, replace: true }, async ({ data, signal }) => {
    // Replace this line with a call to your mail provider, and pass the signal on.
    await setTimeout(1_000, undefined, { signal });
    return `sent "${data.subject}" to ${data.to}`;
  });
}
