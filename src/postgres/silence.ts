import { secondsText } from '../core/text/seconds.js';

/** A connection did not respond: the network lost it, or its server is gone. What the statement did is not known. */
export class SilentError extends Error {
  constructor(limitMs: number) {
    super(`the database did not answer within ${secondsText(limitMs)}; the connection is replaced`);
    this.name = 'SilentError';
  }
}

/** Resolves to the response, or rejects if none came within the limit. The caller must then give up the connection. */
export function answered<T>(answer: Promise<T>, limitMs: number): Promise<T> {
  if (limitMs === Infinity) return answer;
  return new Promise((resolve, reject) => {
    const limit = setTimeout(() => reject(new SilentError(limitMs)), limitMs);
    answer.finally(() => clearTimeout(limit)).then(resolve, reject);
  });
}
