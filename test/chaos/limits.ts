/** The waits of a chaos run. Each has a limit, and a wait that fails says what it waited for. */
import { availableParallelism, loadavg } from 'node:os';
import { sleep } from './chaos-database.js';

/** Far longer than anything takes on a machine that is ten times slower. */
export const PATIENCE_MS = 180_000;

/**
 * A busy machine is slow but never still: if nothing moves for longer than this, work is stuck. The limit is shorter
 * than a server's own limit on open transactions, because the instance that reclaims a dead process's work ends its
 * transactions. If more processes want to run than there are cores, each is that much slower, and so is the start of a
 * new worker.
 */
export function stalledMs(): number {
  const [load = 0] = loadavg();
  return 30_000 * Math.min(5, Math.max(1, load / availableParallelism()));
}

/** Fails after a while with "waited … ms in vain for". */
export async function limited<T>(what: string, promise: Promise<T>, limitMs = PATIENCE_MS): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const tooLate = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`waited ${String(limitMs)} ms in vain for ${what}`)), limitMs);
  });
  try {
    return await Promise.race([promise, tooLate]);
  } finally {
    clearTimeout(timer);
  }
}

/** Polls until the condition holds. */
export async function reached(what: string, isReached: () => boolean, limitMs = PATIENCE_MS): Promise<void> {
  const end = performance.now() + limitMs;
  while (!isReached()) {
    if (performance.now() > end) throw new Error(`waited ${String(limitMs)} ms in vain for ${what}`);
    await sleep(50);
  }
}

/** Runs `work`, then `end` in any case. The first error is the one that matters, because the server may be gone. */
export async function thenEnd<T>(work: () => Promise<T>, end: () => Promise<void>): Promise<T> {
  try {
    const report = await work();
    await end();
    return report;
  } catch (error) {
    await end().catch(() => undefined);
    throw error;
  }
}
