import { setTimeout as sleep } from 'node:timers/promises';

/** Resolves as soon as `holds` answers something true; after twenty seconds it says what it had been waiting for. */
export async function until(what: string, holds: () => unknown): Promise<void> {
  const end = performance.now() + 20_000;
  while (!(await holds())) {
    if (performance.now() > end) throw new Error(`waited twenty seconds for: ${what}`);
    await sleep(10);
  }
}

/** For facts that nothing announces: that something did not happen. */
export const quiet = (ms: number): Promise<void> => sleep(ms);
