/** A connection that does not answer: the network lost it, or its server is gone. What the statement did is not known. */
export class SilentError extends Error {
  constructor(limitMs: number) {
    super(`the database did not answer within ${String(limitMs / 1_000)} s; the connection is replaced`);
    this.name = 'SilentError';
  }
}

/** The answer, or an error when none came within the limit. Whoever asked has to give up the connection then. */
export function answered<T>(answer: Promise<T>, limitMs: number): Promise<T> {
  if (limitMs === Infinity) return answer;
  return new Promise((resolve, reject) => {
    const limit = setTimeout(() => reject(new SilentError(limitMs)), limitMs);
    answer.finally(() => clearTimeout(limit)).then(resolve, reject);
  });
}
