import type { Collection, Db } from 'mongodb';
import { Monque, type MonqueOptions } from '../../../src/compat/monque/index.js';
import { cleanUpAfterEach } from '../../support/cleanup.js';

const open: Monque[] = [];
cleanUpAfterEach(() => Promise.all(open.splice(0).map((monque) => monque.stop())));

export interface Opened {
  readonly monque: Monque;
  readonly jobs: Collection;
}

/** An initialized Monque that is stopped after the test. */
export async function aMonque(db: Db, options: MonqueOptions = {}): Promise<Opened> {
  const fast = { pollInterval: 50, shutdownTimeout: 2_000, baseRetryInterval: 1, statsCacheTtlMs: 0 };
  const monque = new Monque(db, { logger: false, ...fast, ...options });
  open.push(monque);
  await monque.initialize();
  return { monque, jobs: db.collection(options.collectionName ?? 'monque_jobs') };
}

/** The next event of this name. */
export const next = async <T>(monque: Monque, event: string): Promise<T> =>
  new Promise((resolve) => monque.once(event as 'job:start', resolve as never));
