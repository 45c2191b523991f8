import { BSON, ObjectId, type ClientSession } from 'mongodb';
import { deferred, deferredPort } from '../../core/lazily.js';
import { JOB_METHODS, REPLACING_METHODS, WORK_METHODS, type Parts } from '../../store/parts.js';
import type { JobStore } from '../../store/port.js';
import type { Mongo } from '../context.js';
import { insert, insertFree, insertIn } from './enqueue/insert.js';

/** The jobs of a MongoDB. Enqueuing is here; managed.ts has all other transitions. */
export function jobStore(mongo: () => Mongo, parts: Parts): JobStore<ClientSession> {
  const managed = parts.add(async () => (await import('./managed.js')).managedJobs(mongo));
  return {
    newId: () => new ObjectId().toHexString(),
    insert: (jobs, session) =>
      session === undefined ? insert(mongo(), jobs) : insertIn(mongo(), jobs, session),
    insertFree: (jobs) => insertFree(mongo(), jobs),
    changes: { hears: 'most', ...deferredPort(managed, 'changes', ['watch']) },
    cursorKey: (record) => BSON.EJSON.stringify({ key: record.key }, { relaxed: false }),
    async *each(filter, size) {
      yield* (await managed()).each(filter, size);
    },
    ...deferred(managed, [...WORK_METHODS, ...JOB_METHODS, ...REPLACING_METHODS, 'heartbeat']),
  };
}
