import type { ChangeStore } from '../../store/jobs/changes.js';
import { EVERYTHING, scopeText, type JobStore } from '../../store/port.js';
import { message, wakeMessage } from '../cluster/notifier.js';
import { changeStore } from './changes.js';
import { claim, claimedUnder } from './claim.js';
import type { Sql } from '../connection/connection.js';
import { depths } from './find/depths.js';
import type { Queryable } from '../connection/driver.js';
import { run } from '../connection/errors.js';
import * as finding from './find/find.js';
import * as holding from './hold.js';
import { peek } from './peek.js';
import * as managing from './manage.js';
import { releaseSuccessors } from './enqueue/put.js';
import { rows } from '../connection/rows.js';
import * as scheduling from './schedules.js';
import { settle, settleIn } from './settle.js';
import { sweep } from './sweep.js';
import { telling } from './telling.js';

/** Every method that enqueuing does not need. Each transition is in the file named after its kind; this is the list. */
export function managedJobs(sql: () => Sql): Omit<
  JobStore<Queryable>,
  'newId' | 'insert' | 'insertFree' | 'cursorKey' | 'changes'
> & {
  readonly changes: ChangeStore;
} {
  return {
    changes: changeStore(sql),
    peek: (names) => peek(sql(), names),
    claim: (request) => telling(sql, claim(sql(), request), ({ jobs }) => idsOf(jobs)),
    claimedUnder: (instance, token) => claimedUnder(sql(), instance, token),
    settle: (settlements) =>
      telling(sql, settle(sql(), settlements), () =>
        settlements.flatMap(({ lease, letter }) => [lease.id, ...(letter === undefined ? [] : [letter.id])]),
      ),
    settleIn: (settlement, transaction) => settleIn(sql(), settlement, transaction),
    held: (leases) => run('read held jobs', () => holding.held(sql(), leases)),
    heldIn: async (lease, transaction) =>
      (await holding.held(sql(), [lease], sql().driver.limited(transaction)))[0],
    settledUnder: (lease) => holding.settledUnder(sql(), lease),
    begin: (lease) => holding.begin(sql(), lease),
    note: (notes) => telling(sql, holding.note(sql(), notes), () => notes.map(({ lease }) => lease.id)),
    cancelRequests: (leases) => holding.cancelRequests(sql(), leases),
    heldBy: (instance, limit) => holding.heldBy(sql(), instance, limit),
    strays: (query) => holding.strays(sql(), query),
    insertFailedRun: (of, failure) => holding.insertFailedRun(sql(), of, failure),
    get: (id) => finding.get(sql(), id),
    ends: (ids) => finding.ends(sql(), ids),
    find: (filter, page) => finding.find(sql(), filter, page),
    count: (filter, most = Infinity) => finding.count(sql(), filter, most),
    stats: (cap) => finding.stats(sql(), cap),
    depths: (request) => depths(sql(), request),
    failures: (limit, name) => finding.failures(sql(), limit, name),
    each: (filter, size) => finding.each(sql(), filter, size),
    cancel: (id, retention) => telling(sql, managing.cancel(sql(), id, retention), () => [id]),
    retry: (id, now, replacement) => telling(sql, managing.retry(sql(), id, now, replacement), () => [id]),
    remove: (id) => telling(sql, managing.remove(sql(), id), () => [id]),
    reschedule: (id, at) => telling(sql, managing.reschedule(sql(), id, at), () => [id]),
    update: (id, changes) => telling(sql, managing.update(sql(), id, changes), () => [id]),
    expire: (retention, ids) => telling(sql, managing.expire(sql(), retention, ids), idsOf),
    releaseSuccessors: () => releaseSuccessors(sql()),
    cancelBatch: (jobs, retention) =>
      telling(sql, managing.cancelBatch(sql(), jobs, retention), () => idsOf(jobs)),
    retryBatch: (jobs, now) => telling(sql, managing.retryBatch(sql(), jobs, now), () => idsOf(jobs)),
    removeBatch: (jobs) => telling(sql, managing.removeBatch(sql(), jobs), () => idsOf(jobs)),
    sweep: (now) => sweep(sql(), now),
    putSchedule: (change) => scheduling.putSchedule(sql(), change),
    schedules: (name) => scheduling.schedules(sql(), name),
    schedule: (name, key) => scheduling.schedule(sql(), name, key),
    removeSchedule: (name, key) => scheduling.removeSchedule(sql(), name, key),
    pauseSchedule: (name, key, paused, at) => scheduling.pauseSchedule(sql(), name, key, paused, at),
    runScheduleNow: (name, key, now) => scheduling.runScheduleNow(sql(), name, key, now),
    pauseName: (name) => pauseName(sql(), name, true),
    resumeName: (name) => pauseName(sql(), name, false),
    isPaused: (name) => isPaused(sql(), name),
    isHeldUp: (name) => isHeldUp(sql(), name),
  };
}

const idsOf = (jobs: readonly { readonly id: string }[]): readonly string[] => jobs.map(({ id }) => id);

/** Both notify: resumed work may start, and jobs of a paused name that were claimed ahead must not. */
async function pauseName({ driver, names, notifier }: Sql, name: string, paused: boolean): Promise<void> {
  const text = paused
    ? `insert into ${names.pauses} (kind, name) values ('jobs', $1::text) on conflict do nothing`
    : `delete from ${names.pauses} where kind = 'jobs' and name = $1::text`;
  await run(paused ? 'pause' : 'resume', () => driver.query(text, [name]));
  notifier.notify(wakeMessage());
  if (name === EVERYTHING) notifier.notify(message('tasks'));
}

const pausedIn = ({ names }: Sql): string =>
  `exists(select from ${names.pauses} where kind = 'jobs' and name in ($1::text, ''))`;

async function isTrue({ driver }: Sql, condition: string, values: string[]): Promise<boolean> {
  const text = `select to_json(${condition})::text as json`;
  const [answer] = await run('read a pause', () => rows<boolean>(driver.prepared, text, values));
  return answer === true;
}

const isPaused = (sql: Sql, name: string): Promise<boolean> => isTrue(sql, pausedIn(sql), [name]);

function isHeldUp(sql: Sql, name: string): Promise<boolean> {
  const limits = sql.names.table('limits');
  const limited = `exists(select from ${limits} where scope = $2::text and limits <> '{}')`;
  return isTrue(sql, `${pausedIn(sql)} or ${limited}`, [name, scopeText({ kind: 'job', name })]);
}
