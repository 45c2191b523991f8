import { OptionError } from '../../core/errors.js';
import { checkKeys, checkOneOf, checkText, show, suggestion } from '../../core/options.js';
import type { NamedSchedule } from '../document-schedules.js';
import { isLate } from '../../core/records/job.js';
import type { FoundTask, Tasks } from '../../reactive/manage/manager.js';
import { reactiveOf } from '../../reactive/reactive-of.js';
import { limitReasons, type Reason } from '../limits/why.js';
import {
  EVERYTHING,
  isAlive,
  type Capacity,
  type Cluster,
  type InstanceDetails,
  type Store,
} from '../../store/port.js';

export type { Reason } from '../limits/why.js';

/** A job by its id, a reactive task by the `id` that `tasks.find` returns, or a document of a schedule of this mill. */
export interface WhyTarget {
  /** Which kind of work. */
  readonly kind: 'jobs' | 'tasks' | 'documents';
  /** The id of the job, or of the task or document as `tasks.find` or the schedule's `find` returns it. */
  readonly id: string;
  /** For documents only: the name of the schedule, as `mill.documentSchedules` returns it. Default: none. */
  readonly name?: string;
}

/** A pending job or reactive task. */
interface Waiting {
  readonly kind: 'jobs' | 'tasks';
  readonly name: string;
  readonly dueAt: Date;
  readonly failed: number;
}

const RUNNING_COUNTED = 10_000;

/** `mill.why`: reads what claims depend on, and explains it in words. */
export class Why {
  readonly #store: () => Promise<Store>;
  readonly #tasks: Tasks;
  readonly #schedules: readonly NamedSchedule[];

  constructor(store: () => Promise<Store>, tasks: Tasks, schedules: readonly NamedSchedule[]) {
    this.#store = store;
    this.#tasks = tasks;
    this.#schedules = schedules;
  }

  async of(target: WhyTarget): Promise<readonly Reason[]> {
    checkKeys('why', target, ['kind', 'id', 'name']);
    const kind = checkOneOf('why', 'kind', target.kind, ['jobs', 'tasks', 'documents']);
    const id = checkText('why', 'id', target.id);
    if (kind !== 'documents' && target.name !== undefined)
      throw new OptionError(`why: name is for documents; ${kind} are found by their id.`);
    if (kind === 'documents') return this.#document(checkText('why', 'name', target.name), id);
    return kind === 'jobs' ? this.#job(id) : this.#task(id);
  }

  async #job(id: string): Promise<readonly Reason[]> {
    const store = await this.#store();
    const job = await store.jobs.get(id);
    if (job === undefined) throw new OptionError(`why: there is no job with the id ${show(id)}.`);
    const { cluster, instances } = await store.instances.describe();
    if (job.status === 'processing') return held(job.claimedBy, instances);
    if (job.status !== 'pending') return [];
    const paused = [
      ...everythingPaused(cluster),
      ...(cluster.paused.has(job.name)
        ? [reason('paused', `Jobs of the name ${show(job.name)} are paused until you resume the name.`)]
        : []),
    ];
    if (job.paused === true)
      return [...paused, reason('paused', 'The schedule is paused until you resume it.')];
    if (job.successorKey !== undefined) {
      const key = `the unique key ${show(job.successorKey)} of ${show(job.name)}`;
      return [
        ...paused,
        reason('waiting', `It follows the job that has ${key}, and starts when that has ended.`),
      ];
    }
    if (isLate(job, cluster.now.getTime()))
      return [reason('waiting', 'It did not start in time (expireIn); it is about to be cancelled.')];
    const waiting = { kind: 'jobs', name: job.name, dueAt: job.nextRunAt, failed: job.failCount } as const;
    const able = runners(instances, 'jobs', job.name);
    const reasons = await this.#waiting(waiting, paused, able, cluster.now);
    return this.#orLimits(reasons, { ...job, kind: 'job' });
  }

  /** Limits of the cluster, if they hold up what would otherwise run. */
  async #orLimits(
    reasons: readonly Reason[],
    work: Parameters<typeof limitReasons>[1],
  ): Promise<readonly Reason[]> {
    const { limits } = await this.#store();
    const isHeldUp = reasons.every(({ code }) => code === 'waiting' || code === 'limit-reached');
    const limited = isHeldUp && limits !== undefined ? await limitReasons(limits, work) : [];
    return limited.length > 0 ? limited : reasons;
  }

  async #document(name: string, id: string): Promise<readonly Reason[]> {
    const named = this.#schedules.find((one) => one.name === name);
    if (named === undefined) {
      const hint = suggestion(
        name,
        this.#schedules.map((one) => one.name),
      );
      throw new OptionError(`why: this mill has no document schedule of the name ${show(name)}.${hint}`);
    }
    const [document] = (await named.schedule.find({ id }, { limit: 1 })).items;
    if (document === undefined)
      throw new OptionError(`why: the schedule ${show(name)} has no document with the id ${show(id)}.`);
    if (document.runAt === undefined) return [];
    const { cluster } = await (await this.#store()).instances.describe();
    const paused = everythingPaused(cluster);
    const { runAt: dueAt } = document;
    if (dueAt > cluster.now) return [...paused, notDue({ dueAt, failed: document.failure?.count ?? 0 })];
    if (paused.length > 0) return paused;
    return this.#orLimits([itsTurn(dueAt)], { kind: 'documents', name, id });
  }

  async #task(id: string): Promise<readonly Reason[]> {
    const store = await this.#store();
    const [task] = (await this.#tasks.find({ id }, { limit: 1 })).items;
    if (task === undefined) throw new OptionError(`why: there is no task with the id ${show(id)}.`);
    const { cluster, instances } = await store.instances.describe();
    if (task.status.startsWith('processing')) return held(task.claimedBy, instances);
    if (task.status !== 'pending') return [];
    const waiting = {
      kind: 'tasks',
      name: task.task,
      dueAt: task.scheduledAt,
      failed: task.attempts,
    } as const;
    const [paused, able] = await Promise.all([this.#pause(task), this.#able(store, task, instances)]);
    const reasons = await this.#waiting(
      waiting,
      [...everythingPaused(cluster), ...paused],
      able,
      cluster.now,
    );
    const { limitKey } = task;
    return this.#orLimits(reasons, {
      kind: 'task',
      name: task.task,
      id,
      ...(limitKey === undefined ? {} : { limitKey }),
    });
  }

  async #pause({ task }: FoundTask): Promise<readonly Reason[]> {
    const pause = (await this.#tasks.paused()).find((one) => one.task === task);
    if (pause === undefined) return [];
    const { until } = pause;
    if (until === null)
      return [reason('paused', `Tasks of the name ${show(task)} are paused until you resume the name.`)];
    const text = `Tasks of the name ${show(task)} are throttled until ${until.toISOString()}.`;
    return [{ ...reason('throttled', text), until }];
  }

  /** Live instances that may run a task: those whose filter and projection are the ones in force. */
  async #able(
    store: Store,
    { task }: FoundTask,
    instances: readonly InstanceDetails[],
  ): Promise<readonly InstanceDetails[]> {
    const inForce = (await reactiveOf(store).planner.states()).find((state) => state.task === task);
    return runners(instances, 'tasks', task).filter(({ tasks }) =>
      tasks.some((advert) => advert.task === task && (inForce?.trigger ?? advert.trigger) === advert.trigger),
    );
  }

  async #waiting(
    work: Waiting,
    paused: readonly Reason[],
    able: readonly InstanceDetails[],
    now: Date,
  ): Promise<readonly Reason[]> {
    const reasons = [...paused];
    if (work.dueAt > now) reasons.push(notDue(work));
    if (able.length === 0)
      reasons.push(reason('no-instance', `No live instance runs the name ${show(work.name)}.`));
    if (reasons.length > 0) return reasons;
    const running = await this.#running(work);
    const limit = able.reduce((sum, { capacity }) => sum + limitOf(work, capacity), 0);
    if (running >= limit)
      return [
        reason(
          'limit-reached',
          `${String(running)} of the name ${show(work.name)} are running, the most that its instances run at once (concurrency). It starts when one of them ends.`,
        ),
      ];
    return [itsTurn(work.dueAt)];
  }

  async #running({ kind, name }: Waiting): Promise<number> {
    if (kind === 'tasks') {
      const filter = { task: name, status: ['processing', 'processing_dirty'] } as const;
      return this.#tasks.count(filter, { limit: RUNNING_COUNTED });
    }
    return (await this.#store()).jobs.count({ name: [name], status: ['processing'] }, RUNNING_COUNTED);
  }
}

const reason = (code: Reason['code'], text: string): Reason => ({ code, text });

const itsTurn = (dueAt: Date): Reason =>
  reason('waiting', `Due since ${dueAt.toISOString()}; it waits for its turn.`);

const everythingPaused = ({ paused }: Cluster): readonly Reason[] =>
  paused.has(EVERYTHING)
    ? [reason('paused', 'All work of the cluster is paused until mill.resume(), or: tidemill resume --all')]
    : [];

function notDue({ dueAt, failed }: Pick<Waiting, 'dueAt' | 'failed'>): Reason {
  const after =
    failed > 0 ? ` It has failed ${failed === 1 ? 'once' : `${String(failed)} times`} so far.` : '';
  return { ...reason('not-due', `Not due until ${dueAt.toISOString()}.${after}`), until: dueAt };
}

/** The limit of an instance for a name; infinite if it does not report its capacity, since it may have room. */
const limitOf = ({ kind, name }: Waiting, capacity: Capacity | undefined): number =>
  capacity?.[kind].find(([one]) => one === name)?.[1] ?? Infinity;

const runners = (
  instances: readonly InstanceDetails[],
  kind: Waiting['kind'],
  name: string,
): readonly InstanceDetails[] =>
  instances
    .filter(isAlive)
    .filter(({ names, tasks }) =>
      kind === 'jobs' ? names.includes(name) : tasks.some(({ task }) => task === name),
    );

/** Work that is held runs, unless its holder is dead or unknown. */
function held(holder: string | undefined, instances: readonly InstanceDetails[]): readonly Reason[] {
  if (instances.some((one) => one.instanceId === holder && isAlive(one))) return [];
  const who = holder === undefined ? 'an unknown program' : `the instance ${show(holder)}, which has died`;
  return [
    reason(
      'leased',
      `Its lease is held by ${who}. When the lease has expired, another instance releases the work.`,
    ),
  ];
}
