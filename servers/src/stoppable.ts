export interface Stoppable extends AsyncDisposable {
  /** Ends the processes and removes their temporary folders. A second call waits for the first. */
  stop(): Promise<void>;
}

export function stoppable<T extends object>(server: T, end: () => Promise<void>): T & Stoppable {
  let ending: Promise<void> | undefined;
  const stop = (): Promise<void> => (ending ??= end());
  return Object.assign(server, { stop, [Symbol.asyncDispose]: stop });
}
