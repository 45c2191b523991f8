import type { MemoryStore, MemoryTransaction } from '../../src/memory/index.js';
import { StoreError } from '../../src/core/errors.js';
import type { JobRecord } from '../../src/core/records/job.js';
import type { TaskRecord } from '../../src/core/records/task.js';
import type { Work } from '../../src/core/records/work.js';
import type { Partition } from '../../src/store/reactive/partitions.js';
import type {
  JobStore,
  Lease,
  LimitStore,
  Registration,
  ScopeAsk,
  Settlement,
  WorkStore,
} from '../../src/store/port.js';
import type {
  PlannerStore,
  PlanStore,
  TaskPlan,
  TaskSettlement,
  TaskState,
  TaskStore,
  Term,
} from '../../src/store/reactive/reactive.js';
import { DocumentLocks } from './document-locks.js';
import type { Ending, Judge } from './judge.js';
import { GUARDED } from './limits.js';
import type { SimulatedProcess } from './process.js';
import type { PlannerJudge } from './planners.js';
import type { PartitionedReactive, Server } from './remote.js';

export interface ServerOptions {
  readonly store: MemoryStore;
  readonly judge: Judge;
  readonly planners: PlannerJudge;
  /** The caller of the call that arrives at this moment has given up on it. */
  readonly isLate: () => boolean;
  readonly processOf: (instanceId: string) => SimulatedProcess;
  /** Work whose outcome the database refuses. */
  readonly poisoned: ReadonlySet<string>;
}

/** How the judge reads one kind of work. */
interface Reading<W, S> {
  readonly ending: (settlement: S) => Ending;
  /** How many failed attempts a claim reports. */
  readonly charges: (work: W) => number;
}

const JOBS: Reading<JobRecord, Settlement> = {
  ending: ({ lease, by, status, set }) => ({
    lease,
    by,
    status,
    charge: set.failKind ?? (set.failCount === undefined ? undefined : 'nothing'),
    dueAt: set.nextRunAt,
  }),
  charges: ({ failCount }) => failCount,
};

/** A claim counts an attempt of a task, and the count is taken back if it was none. */
const TASKS: Reading<TaskRecord, TaskSettlement> = {
  ending: ({ lease, by, status, failure, takeBack }) => ({
    lease,
    by,
    status,
    charge: failure?.kind ?? (status === 'pending' && !takeBack ? 'nothing' : undefined),
  }),
  charges: ({ attempts }) => attempts - 1,
};

/** The number of tasks that one step of a cleanup visits. */
const CLEANED = 2;

/** The memory store, with a judge that sees each write as it happens. */
export function watchedServer(options: ServerOptions): Server {
  const { store, judge, processOf } = options;
  const { instances } = store;
  const locks = new DocumentLocks(judge);
  const heard = ({ life, instanceId }: Registration): void => judge.heard(life, processOf(instanceId));
  return {
    kind: store.kind,
    clock: store.clock,
    payload: store.payload,
    maxPayloadBytes: store.maxPayloadBytes,
    locks: store.locks,
    metrics: store.metrics,
    audit: store.audit,
    jobs: watchedJobs(options),
    limits: watchedLimits(options),
    instances: {
      register: async (registration, takeOver) => {
        const answer = await instances.register(registration, takeOver);
        if (answer.refusedBy === undefined) heard(registration);
        return answer;
      },
      renew: async (registration) => {
        const answer = await instances.renew(registration);
        if (answer === 'renewed') heard(registration);
        return answer;
      },
      deregister: (instance) => {
        judge.left(instance.life);
        return instances.deregister(instance);
      },
      list: () => instances.list(),
      describe: () => instances.describe(),
      fence: async (instance) => {
        const fenced = await instances.fence(instance);
        if (fenced !== undefined) judge.fenced(instance.life);
        return fenced;
      },
      bury: (instance) => instances.bury(instance),
    },
    reactive: (process) => watchedReactive(options, process),
    planners: options.planners,
    documents: (place, process) => locks.watched(store.documents(place), process),
    acquire: () => store.acquire(),
    release: () => store.release(),
    watch: (handlers) => store.watch(handlers),
    transaction: (work) => store.transaction(work),
    isTransaction: (value) => store.isTransaction(value),
  };
}

/** Reactive tasks as one process uses them. */
function watchedReactive(options: ServerOptions, process: SimulatedProcess): PartitionedReactive {
  const { reactive } = options.store;
  const { partitioning } = reactive;
  const whole = { partition: { index: 0, of: 1 }, process };
  return {
    useGlobals: () => undefined,
    check: (where, plan) => reactive.check(where, plan),
    prepare: (plans) => reactive.prepare(plans),
    planning: watchedPlanning(options, whole, reactive.planning),
    tasks: (plans) => watchedTasks(options, plans),
    planner: watchedPlanner(options, whole, reactive.planner),
    forgetting: reactive.forgetting,
    partitioning: {
      ...partitioning,
      within: (partition) => {
        const { planner, planning } = partitioning.within(partition);
        return {
          planner: watchedPlanner(options, { partition, process }, planner),
          planning: watchedPlanning(options, { partition, process }, planning),
        };
      },
      divide: async (term, division) => {
        const isDivided = await partitioning.divide(term, division);
        if (isDivided) options.planners.divided();
        return isDivided;
      },
    },
  };
}

interface Planning {
  readonly partition: Partition;
  readonly process: SimulatedProcess;
}

function watchedPlanning(
  { judge, planners, isLate }: ServerOptions,
  { partition, process }: Planning,
  planning: PlanStore,
): PlanStore {
  const plans = (ids?: readonly unknown[]): void => planners.plans(partition, process, ids, isLate());
  return {
    ...planning,
    plan: (plan, ids, ...rest) => {
      plans(ids);
      return planning.plan(plan, ids, ...rest);
    },
    unmatch: (plan, ids, ...rest) => {
      plans(ids);
      return planning.unmatch(plan, ids, ...rest);
    },
    clean: async (plan, scope) => {
      plans('ids' in scope ? scope.ids : undefined);
      const few = 'ids' in scope ? scope : { ...scope, limit: Math.min(scope.limit, CLEANED) };
      const cleaned = await planning.clean(plan, few);
      if (cleaned.deleted > 0) judge.count('ids' in scope ? 'cleaned at once' : 'cleaned');
      return cleaned;
    },
    reprocess: async (plan, which) => {
      plans();
      const count = await planning.reprocess(plan, which);
      planners.reprocessed(partition, plan.task, plan.evolution.handlerVersion);
      return count;
    },
  };
}

function watchedPlanner(
  { judge, planners }: ServerOptions,
  { partition, process }: Planning,
  planner: PlannerStore,
): PlannerStore {
  const saved: Readonly<Partial<Record<PropertyKey, (...given: readonly unknown[]) => void>>> = {
    saveTokens: (term) => planners.reached(partition, term as Term),
    saveState: (_term, task, fields) => planners.saved(partition, String(task), fields as Partial<TaskState>),
    saveCheckpoint: (_term, _source, checkpoint) => {
      if (checkpoint !== undefined) judge.count('checkpoints');
    },
  };
  return new Proxy(planner, {
    get: (of, property) => {
      const value: unknown = Reflect.get(of, property, of);
      if (typeof value !== 'function') return value;
      return async (...given: unknown[]): Promise<unknown> => {
        const answer: unknown = await Reflect.apply(value, of, given);
        if (answer === true) saved[property]?.(...given);
        if (property === 'lead' && answer !== undefined) planners.led(partition, process);
        return answer;
      };
    },
  });
}

/** A rule of the database refuses the whole statement because of one of its rows. */
function refusePoisoned(poisoned: ReadonlySet<string>, ids: readonly string[]): void {
  const bad = ids.find((id) => poisoned.has(id));
  if (bad !== undefined) throw new StoreError(`settle: the database refuses ${bad}.`, { transient: false });
}

/** What every kind of work has in common: the judge sees who takes it, and how it ends. */
function watchedWork<W extends Work, S extends { readonly lease: Lease }>(
  work: WorkStore<W, S, MemoryTransaction>,
  { ending: endingOf, charges }: Reading<W, S>,
  { judge, poisoned }: ServerOptions,
): Pick<WorkStore<W, S, MemoryTransaction>, 'claim' | 'settle' | 'settleIn'> {
  return {
    claim: async (request) => {
      const answer = await work.claim(request);
      judge.claimed(
        answer.jobs.map((job) => ({ id: job.id, name: job.name, charges: charges(job) })),
        request.token,
      );
      return answer;
    },
    settle: async (settlements) => {
      refusePoisoned(
        poisoned,
        settlements.map(({ lease }) => lease.id),
      );
      const answers = await work.settle(settlements);
      for (const [at, answer] of answers.entries()) judge.settled(endingOf(settlements[at] as S), answer);
      return answers;
    },
    settleIn: async (settlement, transaction) => {
      const answer = await work.settleIn(settlement, transaction);
      if (answer === 'settled') transaction.add(always, () => judge.settled(endingOf(settlement), 'settled'));
      return answer;
    },
  };
}

function watchedJobs(options: ServerOptions): JobStore<MemoryTransaction> {
  const { jobs } = options.store;
  return {
    ...jobs,
    ...watchedWork(jobs, JOBS, options),
    insert: async (given, transaction) => {
      const inserted = await jobs.insert(given, transaction);
      for (const { job, outcome } of inserted) if (outcome === 'created') options.judge.created(job);
      return inserted;
    },
  };
}

function watchedTasks(
  options: ServerOptions,
  plans: () => ReadonlyMap<string, TaskPlan>,
): TaskStore<MemoryTransaction> {
  const tasks = options.store.reactive.tasks(plans);
  return { ...tasks, ...watchedWork(tasks, TASKS, options) };
}

/** The judge sees what becomes of the breaker; everything else about limits it sees by the claims. */
function watchedLimits({ store, judge }: ServerOptions): LimitStore {
  const { limits } = store;
  const breaker = { kind: 'job', name: GUARDED } as const;
  const look = async (trial?: string): Promise<void> => {
    const { scopes } = await limits.read([breaker]);
    for (const scope of scopes) judge.limits.breaker(scope.breaker, trial);
  };
  return {
    ...limits,
    exchange: async (life, asks) => {
      const answers = await limits.exchange(life, asks);
      for (const [at, answer] of answers.entries()) {
        const { scope, seq } = asks[at] as ScopeAsk;
        if (scope.name !== GUARDED || typeof answer !== 'object') continue;
        await look(answer.trial ? `${life}/${String(seq)}` : undefined);
      }
      return answers;
    },
  };
}

const always = (): boolean => true;
