import { deferred, deferredPort } from '../../core/lazily.js';
import { JOB_METHODS, REPLACING_METHODS, WORK_METHODS, type Parts } from '../../store/parts.js';
import type { JobStore } from '../../store/port.js';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { newId } from './enqueue/ids.js';
import { insert, insertFree, insertIn } from './enqueue/insert.js';
import { telling } from './telling.js';

/** The job store. Enqueuing is here; managed.ts has all other transitions. */
export function jobStore(sql: () => Sql, parts: Parts): JobStore<Queryable> {
  const managed = parts.add(async () => (await import('./managed.js')).managedJobs(sql));
  return {
    newId: (createdAt) => newId(createdAt?.getTime() ?? sql().clock.now()),
    changes: { hears: 'most', ...deferredPort(managed, 'changes', ['watch']) },
    insert: (jobs, transaction) =>
      transaction === undefined
        ? telling(sql, insert(sql(), jobs), (stored) => stored.map(({ job }) => job.id))
        : insertIn(sql(), jobs, transaction),
    insertFree: (jobs) =>
      telling(sql, insertFree(sql(), jobs), (stored) => stored.flatMap((one) => one?.job.id ?? [])),
    cursorKey: (record) => record.id,
    async *each(filter, size) {
      yield* (await managed()).each(filter, size);
    },
    ...deferred(managed, [...WORK_METHODS, ...JOB_METHODS, ...REPLACING_METHODS, 'sweep']),
  };
}
