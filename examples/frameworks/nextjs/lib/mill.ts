import { Tidemill } from 'tidemill';

const kept = globalThis as typeof globalThis & { mill?: Tidemill };

/**
 * One mill per process. The dev server loads this module again after a change, and the route handlers of a build may each
 * have a copy of it: without `globalThis`, every copy would open connections of its own.
 */
export const mill = (kept.mill ??= new Tidemill({
  store: process.env.DATABASE_URL ?? 'postgres://localhost:5432/app',
  shutdownTimeout: '25s',
}));
