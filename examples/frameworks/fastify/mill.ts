import { Tidemill } from 'tidemill';

/** The constructor does not connect; the first call that needs the database does. */
export const mill = new Tidemill({
  store: process.env.DATABASE_URL ?? 'file:./data',
  // Kubernetes waits 30 s between SIGTERM and SIGKILL. HTTP may take 10 s of them.
  shutdownTimeout: '15s',
});
