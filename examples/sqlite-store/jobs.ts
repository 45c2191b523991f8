/** The transitions of jobs. Each is one call of `write`: it reads, checks its precondition and writes, or does nothing. */
import { randomBytes } from 'node:crypto';
import {
  fairShare,
  FINISHED,
  isPausedIn,
  JOB_STATUSES,
  LOG_LIMIT,
  type Cluster,
  type Inserted,
  type JobRecord,
  type JobStore,
  type NewJob,
  type SettleAnswer,
  type Settlement,
  type StatusCounts,
} from 'tidemill/store';
import { unsupported, type SqliteFile } from './database.js';
import { claimFields, JobTable, recordOf, type Stored } from './table.js';

export interface Surroundings {
  readonly file: SqliteFile;
  /** Reads the cluster, inside a transition. */
  readonly cluster: () => Cluster;
  readonly wake: () => void;
  readonly cancel: () => void;
}

export function sqliteJobs({ file, cluster, wake, cancel }: Surroundings): JobStore<never> {
  const table = new JobTable(file);
  const now = (): Date => new Date();

  /** Ids grow with time, so that older jobs go first. */
  let serial = 0;
  const newId = (): string =>
    Date.now().toString(16).padStart(12, '0') +
    ((serial += 1) % 0x10000).toString(16).padStart(4, '0') +
    randomBytes(4).toString('hex');

  const insertOne = (job: NewJob): Inserted => {
    const id = job.id ?? newId();
    const rival = table.get(id) ?? table.live(job.name, job.uniqueKey);
    if (rival !== undefined) return { job: recordOf(rival), outcome: 'existing' };
    return { job: recordOf(table.insert(job, id)), outcome: 'created' };
  };

  const dueOf = (name: string, limit: number): Stored[] =>
    table.select(
      `name = ? AND status = 'pending' AND due <= ? ORDER BY priority DESC, due, id LIMIT ?`,
      name,
      Date.now(),
      limit,
    );

  const settleOne = (settlement: Settlement): SettleAnswer => {
    const { lease, status, set, entry, logs = [], historyLimit, remove = false, by, letter } = settlement;
    const job = table.get(lease.id);
    if (job === undefined) return remove ? 'settled' : 'lost';
    // A settled job keeps its token, so that a repeated settlement recognises itself.
    if (job.status !== 'processing')
      return by === 'holder' && job.leaseToken === lease.token ? 'settled' : 'lost';
    if ((job.leaseToken ?? null) !== lease.token) return 'lost';
    if (status === 'pending' && job.cancelRequestedAt !== undefined) return 'changed';
    if (remove) table.remove(job);
    else
      table.change(job, {
        ...set,
        status,
        claimedBy: null,
        lastHeartbeat: null,
        heartbeatInterval: null,
        startedToken: null,
        lockedAt: null,
        updatedAt: now(),
        ...(by === 'reclaimer' ? { leaseToken: null } : {}),
        ...(entry === undefined
          ? {}
          : { history: [...(job.history ?? []), entry].slice(-Math.max(1, historyLimit)) }),
        ...(logs.length === 0 ? {} : { logs: [...(job.logs ?? []), ...logs].slice(-LOG_LIMIT) }),
      });
    // In the same transaction, so the dead letter exists if and only if the failure does.
    if (letter !== undefined) insertOne(letter);
    return 'settled';
  };

  const cancelOne = (job: Stored, keepMs: number): Stored => {
    const at = now();
    if (job.status === 'processing') return table.change(job, { cancelRequestedAt: at, updatedAt: at });
    const expiresAt = new Date(at.getTime() + keepMs);
    return table.change(job, { status: 'cancelled', finishedAt: at, updatedAt: at, expiresAt });
  };

  const retryOne = (
    id: string,
    at: Date,
    replacement: { readonly data?: unknown } = {},
  ): Awaited<ReturnType<JobStore['retry']>> => {
    const job = table.get(id);
    if (job === undefined) return undefined;
    if (job.status === 'completed') return { outcome: 'finished', job: recordOf(job) };
    if (!FINISHED.includes(job.status)) return { outcome: 'unfinished', job: recordOf(job) };
    if (table.live(job.name, job.uniqueKey) !== undefined) return { outcome: 'live', job: recordOf(job) };
    const { result, progress, finishedAt, expiresAt, cancelRequestedAt, leaseToken, ...kept } = job;
    const fresh = { failCount: 0, failKind: null, firstFailedAt: null, lockedAt: null };
    const due = { status: 'pending', nextRunAt: at, updatedAt: now() } as const;
    const after = table.change(kept, { ...fresh, ...due, ...replacement });
    return { outcome: 'retried', job: recordOf(after) };
  };

  return {
    newId,
    // ---- from here: what the enqueuer and the engine ask
    insert: async (jobs) => {
      const inserted = await file.write(() => jobs.map(insertOne));
      if (jobs.some((job) => job.wake !== undefined)) wake();
      return inserted;
    },
    peek: async (names) => {
      const list = JSON.stringify(names);
      const rows = file.all(
        `SELECT name, min(due) AS due FROM jobs
         WHERE status = 'pending' AND name IN (SELECT value FROM json_each(?)) GROUP BY name`,
        list,
      );
      const nextDue = new Map(rows.map(({ name, due }) => [String(name), new Date(Number(due))]));
      return { cluster: cluster(), nextDue, foreign: false };
    },
    claim: (request) =>
      file.write(() => {
        const around = cluster();
        const names = [...request.limits].filter(([name]) => !isPausedIn(around.paused, name));
        const heads = new Map(names.map(([name, { max }]) => [name, dueOf(name, max + 1)]));
        const offers = names.map(
          ([name, { max }]) => [name, Math.min(max, heads.get(name)?.length ?? 0)] as const,
        );
        const shares = fairShare(new Map(offers), request.total);
        const taken = [...heads].flatMap(([name, jobs]) => jobs.slice(0, shares.get(name) ?? 0));
        const jobs = taken.map((job) => recordOf(table.change(job, claimFields(request, around.now))));
        const more = [...heads].some(([name, due]) => due.length > (shares.get(name) ?? 0));
        return { jobs, asked: jobs.length, more, cluster: around };
      }),
    claimedUnder: async (_instance, token) =>
      table.select(`status = 'processing' AND token = ?`, token).map(recordOf),
    settle: (settlements) => file.write(() => settlements.map(settleOne)),
    held: async (leases) =>
      leases.map((lease) => {
        const job = table.holding(lease);
        return job === undefined ? undefined : recordOf(job);
      }),
    settledUnder: async ({ id, token }) => {
      const job = table.get(id);
      return job === undefined || (job.status !== 'processing' && job.leaseToken === token);
    },
    begin: (lease) =>
      file.write(() => {
        const job = table.holding(lease);
        if (job === undefined) return 'lost';
        table.change(job, { startedToken: lease.token });
        return 'begun';
      }),
    note: (notes) =>
      file.write(() => {
        for (const { lease, progress, logs = [] } of notes) {
          const job = table.holding(lease);
          if (job === undefined) continue;
          table.change(job, {
            ...(progress === undefined ? {} : { progress: progress.value }),
            ...(logs.length === 0 ? {} : { logs: [...(job.logs ?? []), ...logs].slice(-LOG_LIMIT) }),
          });
        }
      }),
    heartbeat: ({ life }, except) =>
      file.write(() => {
        const skipped = new Set(except.map(({ id }) => id));
        for (const job of table.select(`status = 'processing' AND token LIKE ?`, `${life}.%`))
          if (!skipped.has(job.id)) table.change(job, { lastHeartbeat: now(), updatedAt: now() });
      }),
    cancelRequests: async (leases) =>
      leases.filter(({ id }) => table.get(id)?.cancelRequestedAt !== undefined),
    heldBy: async ({ life }, limit) =>
      table.select(`status = 'processing' AND token LIKE ? LIMIT ?`, `${life}.%`, limit).map(recordOf),
    strays: async ({ lives, olderThanMs, limit }) =>
      table
        .select(`status = 'processing'`)
        .filter((job) => !lives.some(({ life }) => life === job.leaseToken?.split('.')[0]))
        .filter((job) => (job.lockedAt?.getTime() ?? 0) < Date.now() - olderThanMs)
        .slice(0, limit)
        .map(recordOf),

    // ---- from here: what people ask
    get: async (id) => {
      const job = table.get(id);
      return job === undefined ? undefined : recordOf(job);
    },
    ends: async (ids) => {
      const jobs = [...table.matching({ ids })];
      const over = (job: JobRecord): boolean => FINISHED.includes(job.status);
      return {
        ended: jobs.filter(over).map(recordOf),
        live: jobs.filter((job) => !over(job)).map(({ id }) => id),
      };
    },
    find: async (filter, { field, direction, limit, after }) => {
      const column = { createdAt: 'created', updatedAt: 'updated', nextRunAt: 'due' }[field];
      const [sign, order] = direction === 1 ? ['>', 'ASC'] : ['<', 'DESC'];
      const past = after === undefined ? '' : `AND (${column}, id) ${sign} (?, ?)`;
      const from = after === undefined ? [] : [after.at.getTime(), after.key];
      const jobs: JobRecord[] = [];
      for (const job of table.matching(filter, `${column} ${order}, id ${order}`, past, ...from)) {
        if (jobs.length === limit) return { jobs, more: true, partial: false };
        jobs.push(recordOf(job));
      }
      return { jobs, more: false, partial: false };
    },
    cursorKey: ({ id }) => id,
    count: async (filter, most = Infinity) => {
      let count = 0;
      for (const _job of table.matching(filter)) if ((count += 1) >= most) break;
      return Math.min(count, most);
    },
    stats: async (cap) => {
      const rows = file.all(
        'SELECT name, status, count(*) AS n FROM jobs GROUP BY name, status ORDER BY name',
      );
      const names = [...new Set(rows.map(({ name }) => String(name)))].map((name) => {
        const of = (status: string): number =>
          Number(rows.find((row) => row['name'] === name && row['status'] === status)?.['n'] ?? 0);
        const counts = Object.fromEntries(JOB_STATUSES.map((status) => [status, Math.min(cap, of(status))]));
        return {
          name,
          counts: counts as StatusCounts,
          capped: JOB_STATUSES.filter((status) => of(status) > cap),
        };
      });
      return { names, total: rows.reduce((sum, { n }) => sum + Number(n), 0) };
    },
    failures: async (limit, name) =>
      table
        .select(`status = 'failed' AND ?1 IN (name, '') ORDER BY updated DESC LIMIT ?2`, name ?? '', limit)
        .map((job) => ({ name: job.name, message: job.failReason ?? '', at: job.updatedAt })),
    each: async function* (filter, batch) {
      const ids = [...table.matching(filter)].map(({ id }) => id);
      for (let at = 0; at < ids.length; at += batch)
        yield [...table.matching({ ids: ids.slice(at, at + batch) })].map(recordOf);
    },

    // ---- from here: what people do
    cancel: async (id, retention) => {
      const answer = await file.write(() => {
        const job = table.get(id);
        if (job === undefined) return undefined;
        if (FINISHED.includes(job.status)) return { outcome: 'finished' as const, job: recordOf(job) };
        const outcome = job.status === 'processing' ? ('requested' as const) : ('cancelled' as const);
        return { outcome, job: recordOf(cancelOne(job, retention(job.name).cancelled)) };
      });
      if (answer?.outcome === 'requested') cancel();
      return answer;
    },
    retry: async (id, at, replacement) => {
      const answer = await file.write(() => retryOne(id, at, replacement));
      wake();
      return answer;
    },
    remove: (id) =>
      file.write(() => {
        const job = table.get(id);
        if (job === undefined) return undefined;
        if (job.status === 'processing') return { outcome: 'running', job: recordOf(job) };
        table.remove(job);
        return { outcome: 'removed', job: recordOf(job) };
      }),
    reschedule: async (id, at) => {
      const answer = await file.write(() => {
        const job = table.get(id);
        if (job === undefined) return undefined;
        if (job.status !== 'pending')
          return {
            outcome: job.status === 'processing' ? ('running' as const) : ('finished' as const),
            job: recordOf(job),
          };
        const after = table.change(job, { nextRunAt: at, updatedAt: now() });
        return { outcome: 'rescheduled' as const, job: recordOf(after) };
      });
      wake();
      return answer;
    },
    cancelBatch: async (jobs, retention) => {
      const ids = jobs.map(({ id }) => id);
      const changed = await file.write(() =>
        [...table.matching({ ids, status: ['pending', 'processing'] })]
          .filter(({ cancelRequestedAt }) => cancelRequestedAt === undefined)
          .map((job) => cancelOne(job, retention(job.name).cancelled)),
      );
      cancel();
      return changed.length;
    },
    retryBatch: async (jobs, at) => {
      const answers = await file.write(() => jobs.map(({ id }) => retryOne(id, at)));
      wake();
      return answers.filter((answer) => answer?.outcome === 'retried').length;
    },
    removeBatch: (jobs) =>
      file.write(() =>
        file.run(
          `DELETE FROM jobs WHERE status <> 'processing' AND id IN (SELECT value FROM json_each(?))`,
          JSON.stringify(jobs.map(({ id }) => id)),
        ),
      ),
    sweep: (at) => file.write(() => file.run('DELETE FROM jobs WHERE expires <= ?', at.getTime())),
    pauseName: async (name) => {
      await file.write(() => file.run('INSERT OR IGNORE INTO paused VALUES (?)', name));
      wake();
    },
    resumeName: async (name) => {
      await file.write(() => file.run('DELETE FROM paused WHERE name = ?', name));
      wake();
    },
    isPaused: async (name) => isPausedIn(cluster().paused, name),
    isHeldUp: async (name) => isPausedIn(cluster().paused, name),

    // ---- what this store does without
    depths: async () => [],
    settleIn: unsupported('transactions'),
    heldIn: unsupported('transactions'),
    schedules: async () => [],
    schedule: async () => undefined,
    putSchedule: unsupported('schedules'),
    removeSchedule: unsupported('schedules'),
    pauseSchedule: unsupported('schedules'),
    runScheduleNow: unsupported('schedules'),
    insertFailedRun: unsupported('schedules'),
  };
}
