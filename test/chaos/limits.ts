/** Waits of a chaos run: none is without an end, and the one that fails says what it waited for. */
import { sleep } from './ground.js';

/** Far more than anything takes on a machine that is ten times slower. */
export const PATIENCE_MS = 180_000;

/** Fails after a while, in the words "waited … ms in vain for". */
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

/** Asks until the answer is yes. */
export async function reached(what: string, isReached: () => boolean, limitMs = PATIENCE_MS): Promise<void> {
  const end = performance.now() + limitMs;
  while (!isReached()) {
    if (performance.now() > end) throw new Error(`waited ${String(limitMs)} ms in vain for ${what}`);
    await sleep(50);
  }
}
