import type { JobStore } from '../../store/port.js';
import { wakeMessage } from '../cluster/notifier.js';
import { claim, claimedUnder } from './claim.js';
import type { Sql } from '../connection/connection.js';
import { depths } from './depths.js';
import type { Queryable } from '../connection/driver.js';
import { run } from '../connection/errors.js';
import * as finding from './find.js';
import * as holding from './hold.js';
import { insert, insertFree, insertIn } from './insert.js';
import { peek } from './peek.js';
import * as managing from './manage.js';
import { newId } from './record.js';
import * as scheduling from './schedules.js';
import { settle, settleIn } from './settle.js';
import { sweep } from './sweep.js';

/** The job store. Each transition is in the file named after its kind; this is the list. */
export function jobStore(sql: () => Sql): JobStore<Queryable> {
  return {
    newId: () => newId(sql().clock.now()),
    insert: (jobs, transaction) =>
      transaction === undefined ? insert(sql(), jobs) : insertIn(sql(), jobs, transaction),
    insertFree: (jobs) => insertFree(sql(), jobs),
    peek: (names) => peek(sql(), names),
    claim: (request) => claim(sql(), request),
    claimedUnder: (instance, token) => claimedUnder(sql(), instance, token),
    settle: (settlements) => settle(sql(), settlements),
    settleIn: (settlement, transaction) => settleIn(sql(), settlement, transaction),
    held: (leases) => run('read held jobs', () => holding.held(sql(), leases)),
    heldIn: async (lease, transaction) =>
      (await holding.held(sql(), [lease], sql().driver.limited(transaction)))[0],
    settledUnder: (lease) => holding.settledUnder(sql(), lease),
    begin: (lease) => holding.begin(sql(), lease),
    note: (notes) => holding.note(sql(), notes),
    heartbeat: (instance, except) => holding.beat(sql(), instance, except),
    cancelRequests: (leases) => holding.cancelRequests(sql(), leases),
    heldBy: (instance, limit) => holding.heldBy(sql(), instance, limit),
    strays: (query) => holding.strays(sql(), query),
    insertFailedRun: (of, failure) => holding.insertFailedRun(sql(), of, failure),
    get: (id) => finding.get(sql(), id),
    ends: (ids) => finding.ends(sql(), ids),
    find: (filter, page) => finding.find(sql(), filter, page),
    cursorKey: finding.cursorKey,
    count: (filter, most = Infinity) => finding.count(sql(), filter, most),
    stats: (cap) => finding.stats(sql(), cap),
    depths: (request) => depths(sql(), request),
    failures: (limit, name) => finding.failures(sql(), limit, name),
    each: (filter, size) => finding.each(sql(), filter, size),
    cancel: (id, retention) => managing.cancel(sql(), id, retention),
    retry: (id, now, replacement) => managing.retry(sql(), id, now, replacement),
    remove: (id) => managing.remove(sql(), id),
    reschedule: (id, at) => managing.reschedule(sql(), id, at),
    cancelBatch: (jobs, retention) => managing.cancelBatch(sql(), jobs, retention),
    retryBatch: (jobs, now) => managing.retryBatch(sql(), jobs, now),
    removeBatch: (jobs) => managing.removeBatch(sql(), jobs),
    sweep: (now) => sweep(sql(), now),
    putSchedule: (change) => scheduling.putSchedule(sql(), change),
    schedules: (name) => scheduling.schedules(sql(), name),
    schedule: (name, key) => scheduling.schedule(sql(), name, key),
    removeSchedule: (name, key) => scheduling.removeSchedule(sql(), name, key),
    pauseSchedule: (name, key, paused, at) => scheduling.pauseSchedule(sql(), name, key, paused, at),
    runScheduleNow: (name, key, now) => scheduling.runScheduleNow(sql(), name, key, now),
    pauseName: (name) => pauseName(sql(), name, true),
    resumeName: (name) => pauseName(sql(), name, false),
  };
}

/** Both notify: resumed work may start, and jobs of a paused name that were claimed ahead must not. */
async function pauseName({ driver, names, notifier }: Sql, name: string, paused: boolean): Promise<void> {
  const text = paused
    ? `insert into ${names.pauses} (kind, name) values ('jobs', $1::text) on conflict do nothing`
    : `delete from ${names.pauses} where kind = 'jobs' and name = $1::text`;
  await run(paused ? 'pause' : 'resume', () => driver.query(text, [name]));
  notifier.notify(wakeMessage());
}
