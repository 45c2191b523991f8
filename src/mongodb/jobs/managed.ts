import type { ClientSession } from 'mongodb';
import type { ChangeStore } from '../../store/jobs/changes.js';
import { EVERYTHING, type JobStore } from '../../store/port.js';
import { send, type Message } from '../cluster/messages.js';
import { idOf } from '../limits/scope.js';
import { changeStore } from './changes.js';
import { claim, claimedUnder, type ClaimMemory } from './claim/claim.js';
import { run, type Mongo } from '../context.js';
import { depths } from './depths.js';
import * as finding from './find.js';
import * as holding from './hold.js';
import { loadExisting } from './enqueue/parts.js';
import { look, pauseId } from './claim/peek.js';
import * as managing from './manage.js';
import * as scheduling from './schedules.js';
import { settle, settleIn, wakes } from './settle.js';
import { Windows } from '../slices.js';

/** Every method that enqueuing does not need. Each group of transitions has a file of its own; this is the list. */
export function managedJobs(mongo: () => Mongo): Omit<
  JobStore<ClientSession>,
  'newId' | 'insert' | 'insertFree' | 'cursorKey' | 'changes'
> & {
  readonly changes: ChangeStore;
} {
  const memory: ClaimMemory = { windows: new Windows(), turns: new Map() };
  /** Sends a message once the work is written. */
  const telling = async <T>(
    work: (open: Mongo) => Promise<T>,
    message: (result: T) => Message | undefined = () => ({ kind: 'jobs' }),
  ): Promise<T> => {
    const open = mongo();
    const result = await work(open);
    const said = message(result);
    if (said !== undefined) await send(open, said);
    return result;
  };
  const cancelling = (): Message => ({ kind: 'cancel' });
  const turning = async (name: string, write: (open: Mongo) => Promise<unknown>): Promise<void> => {
    await telling(write);
    if (name === EVERYTHING) await send(mongo(), { kind: 'tasks', news: false });
  };
  return {
    changes: changeStore(mongo),
    peek: (names) => look(mongo(), names),
    claim: (request) => claim(mongo(), memory, request),
    claimedUnder: (instance, token) => claimedUnder(mongo(), instance, token),
    settle: (settlements) =>
      telling(
        (open) => settle(open, settlements),
        () => (wakes(settlements) ? { kind: 'jobs' } : undefined),
      ),
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
    count: (filter, most = Infinity) => finding.count(mongo(), filter, most),
    stats: (cap) => finding.stats(mongo(), cap),
    failures: (limit, name) => finding.failures(mongo(), limit, name),
    depths: (request) => depths(mongo(), request),
    each: (filter, size) => finding.each(mongo(), filter, size),
    cancel: (id, retention) =>
      telling(
        (open) => managing.cancel(open, id, retention),
        (answer) => (answer?.outcome === 'requested' ? cancelling() : undefined),
      ),
    retry: (id, now, replacement) => telling((open) => managing.retry(open, id, now, replacement)),
    remove: (id) => managing.remove(mongo(), id),
    reschedule: (id, at) => telling((open) => managing.reschedule(open, id, at)),
    update: (id, changes) => telling((open) => managing.update(open, id, changes)),
    expire: (retention, ids) => managing.expire(mongo(), retention, ids),
    releaseSuccessors: () =>
      telling(
        async (open) => (await loadExisting()).releaseSuccessors(open),
        (count) => (count > 0 ? { kind: 'jobs' } : undefined),
      ),
    cancelBatch: (jobs, retention) =>
      telling((open) => managing.cancelBatch(open, jobs, retention), cancelling),
    retryBatch: (jobs, now) => telling((open) => managing.retryBatch(open, jobs, now)),
    removeBatch: (jobs) => managing.removeBatch(mongo(), jobs),
    putSchedule: (change) => telling((open) => scheduling.putSchedule(open, change)),
    schedules: (name) => scheduling.schedules(mongo(), name),
    schedule: (name, key) => scheduling.schedule(mongo(), name, key),
    removeSchedule: (name, key) => scheduling.removeSchedule(mongo(), name, key),
    pauseSchedule: (name, key, paused, at) =>
      telling((open) => scheduling.pauseSchedule(open, name, key, paused, at)),
    runScheduleNow: (name, key, now) => telling((open) => scheduling.runScheduleNow(open, name, key, now)),
    pauseName: async (name) => {
      const pause = { $set: { kind: 'pause' as const, name } };
      await turning(name, ({ globals }) =>
        run('pause', () => globals.updateOne({ _id: pauseId(name) }, pause, { upsert: true })),
      );
    },
    resumeName: async (name) => {
      await turning(name, ({ globals }) => run('resume', () => globals.deleteOne({ _id: pauseId(name) })));
    },
    isPaused: (name) =>
      run('read a pause', async () => {
        const found = mongo().globals.aggregate([
          { $match: { _id: { $in: [pauseId(name), pauseId(EVERYTHING)] } } },
          { $project: { _id: 1 } },
        ]);
        return (await found.toArray()).length > 0;
      }),
    isHeldUp: (name) =>
      run('read a pause', async () => {
        const ids = [pauseId(name), pauseId(EVERYTHING), idOf({ kind: 'job', name })];
        const found = mongo().globals.aggregate([
          { $match: { _id: { $in: ids }, limits: { $ne: {} } } },
          { $project: { _id: 1 } },
        ]);
        return (await found.toArray()).length > 0;
      }),
  };
}
