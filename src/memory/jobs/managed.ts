import { isPausedIn, type JobStore } from '../../store/port.js';
import * as claiming from './claim.js';
import * as finding from './find.js';
import * as holding from './hold.js';
import * as managing from './manage.js';
import * as scheduling from './schedules.js';
import { settle, settleIn } from './settle.js';
import type { Table } from './table.js';
import type { MemoryTransaction } from '../transaction.js';

/** The transitions of jobs on a Map. Each does its work before its first await, so each is atomic. */
export function managedJobs(
  table: Table,
): Omit<JobStore<MemoryTransaction>, 'newId' | 'insert' | 'cursorKey'> {
  const { context } = table;
  return {
    peek: (names) => claiming.peek(table, names),
    claim: (request) => claiming.claim(table, request),
    claimedUnder: (instance, token) => claiming.claimedUnder(table, instance, token),
    settle: (settlements) => settle(table, settlements),
    settleIn: (settlement, transaction) => settleIn(table, settlement, transaction),
    held: (leases) => holding.held(table, leases),
    heldIn: async (lease) => (await holding.held(table, [lease]))[0],
    settledUnder: (lease) => holding.settledUnder(table, lease),
    begin: (lease) => holding.begin(table, lease),
    note: (notes) => holding.note(table, notes),
    heartbeat: (instance, except) => holding.beat(table, instance, except),
    cancelRequests: (leases) => holding.cancelRequests(table, leases),
    heldBy: (instance, limit) => holding.heldBy(table, instance, limit),
    strays: (query) => holding.strays(table, query),
    insertFailedRun: (of, failure) => holding.insertFailedRun(table, of, failure),
    get: (id) => finding.get(table, id),
    ends: (ids) => finding.ends(table, ids),
    find: (filter, page) => finding.find(table, filter, page),
    count: (filter, most = Infinity) => finding.count(table, filter, most),
    stats: (cap) => finding.stats(table, cap),
    depths: (request) => finding.depths(table, request),
    failures: (limit, name) => finding.failures(table, limit, name),
    each: (filter, batch) => finding.each(table, filter, batch),
    cancel: (id, retention) => managing.cancel(table, id, retention),
    retry: (id, now, replacement) => managing.retry(table, id, now, replacement),
    remove: (id) => managing.remove(table, id),
    reschedule: (id, at) => managing.reschedule(table, id, at),
    update: (id, changes) => managing.update(table, id, changes),
    expire: (retention, ids) => managing.expire(table, retention, ids),
    releaseSuccessors: () => Promise.resolve(0),
    cancelBatch: (jobs, retention) => managing.cancelBatch(table, jobs, retention),
    retryBatch: (jobs, now) => managing.retryBatch(table, jobs, now),
    removeBatch: (jobs) => managing.removeBatch(table, jobs),
    sweep: (now) => managing.sweep(table, now),
    putSchedule: (change) => scheduling.putSchedule(table, change),
    schedules: (name) => scheduling.schedules(table, name),
    schedule: (name, key) => scheduling.schedule(table, name, key),
    removeSchedule: (name, key) => scheduling.removeSchedule(table, name, key),
    pauseSchedule: (name, key, paused, at) => scheduling.pauseSchedule(table, name, key, paused, at),
    runScheduleNow: (name, key, now) => scheduling.runScheduleNow(table, name, key, now),
    pauseName: (name) => {
      context.paused.add(name);
      context.pausesChanged();
      return Promise.resolve();
    },
    resumeName: (name) => {
      context.paused.delete(name);
      context.pausesChanged();
      return Promise.resolve();
    },
    isPaused: (name) => Promise.resolve(isPausedIn(context.paused, name)),
    isHeldUp: (name) => Promise.resolve(isPausedIn(context.paused, name) || table.limited.has(name)),
  };
}
