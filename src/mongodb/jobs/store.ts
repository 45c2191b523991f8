import { ObjectId, type ClientSession } from 'mongodb';
import type { JobStore } from '../../store/port.js';
import { claim, claimedUnder } from './claim.js';
import { run, type Mongo } from '../context.js';
import { depths } from './depths.js';
import * as finding from './find.js';
import * as holding from './hold.js';
import { insert, insertFree, insertIn } from './insert.js';
import { look } from './peek.js';
import * as managing from './manage.js';
import * as scheduling from './schedules.js';
import { settle, settleIn } from './settle.js';

/** The jobs of a MongoDB. Each group of transitions has a file of its own; this is the list. */
export function jobStore(mongo: () => Mongo): JobStore<ClientSession> {
  return {
    newId: () => new ObjectId().toHexString(),
    insert: (jobs, session) =>
      session === undefined ? insert(mongo(), jobs) : insertIn(mongo(), jobs, session),
    insertFree: (jobs) => insertFree(mongo(), jobs),
    peek: (names) => look(mongo(), names),
    claim: (request) => claim(mongo(), request),
    claimedUnder: (instance, token) => claimedUnder(mongo(), instance, token),
    settle: (settlements) => settle(mongo(), settlements),
    settleIn: (settlement, session) => settleIn(mongo(), settlement, session),
    held: (leases) => run('read held jobs', () => holding.held(mongo(), leases)),
    heldIn: async (lease, session) => (await holding.held(mongo(), [lease], { session }))[0],
    settledUnder: (lease) => holding.settledUnder(mongo(), lease),
    begin: (lease) => holding.begin(mongo(), lease),
    note: (notes) => holding.note(mongo(), notes),
    heartbeat: (instance, except) => holding.beat(mongo(), instance, except),
    cancelRequests: (leases) => holding.cancelRequests(mongo(), leases),
    heldBy: (instance, limit) => holding.heldBy(mongo(), instance, limit),
    strays: (query) => holding.strays(mongo(), query),
    insertFailedRun: (of, failure) => holding.insertFailedRun(mongo(), of, failure),
    get: (id) => finding.get(mongo(), id),
    ends: (ids) => finding.ends(mongo(), ids),
    find: (filter, page) => finding.find(mongo(), filter, page),
    cursorKey: finding.cursorKey,
    count: (filter, most = Infinity) => finding.count(mongo(), filter, most),
    stats: (cap) => finding.stats(mongo(), cap),
    failures: (limit, name) => finding.failures(mongo(), limit, name),
    depths: (request) => depths(mongo(), request),
    each: (filter, size) => finding.each(mongo(), filter, size),
    cancel: (id, retention) => managing.cancel(mongo(), id, retention),
    retry: (id, now, replacement) => managing.retry(mongo(), id, now, replacement),
    remove: (id) => managing.remove(mongo(), id),
    reschedule: (id, at) => managing.reschedule(mongo(), id, at),
    cancelBatch: (jobs, retention) => managing.cancelBatch(mongo(), jobs, retention),
    retryBatch: (jobs, now) => managing.retryBatch(mongo(), jobs, now),
    removeBatch: (jobs) => managing.removeBatch(mongo(), jobs),
    putSchedule: (change) => scheduling.putSchedule(mongo(), change),
    schedules: (name) => scheduling.schedules(mongo(), name),
    schedule: (name, key) => scheduling.schedule(mongo(), name, key),
    removeSchedule: (name, key) => scheduling.removeSchedule(mongo(), name, key),
    pauseSchedule: (name, key, paused, at) => scheduling.pauseSchedule(mongo(), name, key, paused, at),
    runScheduleNow: (name, key, now) => scheduling.runScheduleNow(mongo(), name, key, now),
    pauseName: async (name) => {
      const pause = { $set: { kind: 'pause' as const, name } };
      await run('pause', () => mongo().globals.updateOne({ _id: `pause:${name}` }, pause, { upsert: true }));
    },
    resumeName: async (name) => {
      await run('resume', () => mongo().globals.deleteOne({ _id: `pause:${name}` }));
    },
  };
}
