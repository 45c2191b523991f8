import { OptionError } from '../core/errors.js';
import { checkKeys, checkOneOf, checkText, show } from '../core/options.js';
import type { FoundTask, Tasks } from '../reactive/manage/manager.js';
import { reactiveOf } from '../reactive/reactive-of.js';
import { isAlive, type Capacity, type InstanceDetails, type Store } from '../store/port.js';

/** A reason why a job or a reactive task is not running. */
export interface Reason {
  readonly code: 'paused' | 'not-due' | 'no-instance' | 'limit-reached' | 'throttled' | 'leased' | 'waiting';
  /** A full sentence, for people. */
  readonly text: string;
  /** When the reason ends by itself, if that is known. */
  readonly until?: Date;
}

/** A job by its id, or a reactive task by the `id` that `tasks.find` returns. */
export interface WhyTarget {
  /** Which kind of work. */
  readonly kind: 'jobs' | 'tasks';
  /** The id of the job, or of the task as `tasks.find` returns it. */
  readonly id: string;
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

  constructor(store: () => Promise<Store>, tasks: Tasks) {
    this.#store = store;
    this.#tasks = tasks;
  }

  async of(target: WhyTarget): Promise<readonly Reason[]> {
    checkKeys('why', target, ['kind', 'id']);
    const kind = checkOneOf('why', 'kind', target.kind, ['jobs', 'tasks']);
    const id = checkText('why', 'id', target.id);
    return kind === 'jobs' ? this.#job(id) : this.#task(id);
  }

  async #job(id: string): Promise<readonly Reason[]> {
    const store = await this.#store();
    const job = await store.jobs.get(id);
    if (job === undefined) throw new OptionError(`why: there is no job with the id ${show(id)}.`);
    const { cluster, instances } = await store.instances.describe();
    if (job.status === 'processing') return held(job.claimedBy, instances);
    if (job.status !== 'pending') return [];
    const paused = cluster.paused.has(job.name)
      ? [reason('paused', `Jobs of the name ${show(job.name)} are paused until you resume the name.`)]
      : [];
    if (job.paused === true)
      return [...paused, reason('paused', 'The schedule is paused until you resume it.')];
    const waiting = { kind: 'jobs', name: job.name, dueAt: job.nextRunAt, failed: job.failCount } as const;
    return this.#waiting(waiting, paused, runners(instances, 'jobs', job.name), cluster.now);
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
    return this.#waiting(waiting, paused, able, cluster.now);
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
    return [reason('waiting', `Due since ${work.dueAt.toISOString()}; it waits for its turn.`)];
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

function notDue({ dueAt, failed }: Waiting): Reason {
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
