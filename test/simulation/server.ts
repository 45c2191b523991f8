import type { MemoryStore, MemoryTransaction } from '../../src/memory/index.js';
import { StoreError } from '../../src/core/errors.js';
import type { Work } from '../../src/core/work.js';
import type { JobStore, Lease, Registration, Settlement, WorkStore } from '../../src/store/port.js';
import type { TaskPlan, TaskSettlement, TaskStore } from '../../src/store/reactive.js';
import type { Ending, Judge } from './judge.js';
import type { SimulatedProcess } from './process.js';
import type { Server } from './remote.js';
import { checkResumePoint } from './resume-point.js';

export interface ServerOptions {
  readonly store: MemoryStore;
  readonly judge: Judge;
  readonly processOf: (instanceId: string) => SimulatedProcess;
  /** Work whose outcome the database refuses. */
  readonly poisoned: ReadonlySet<string>;
}

const ofJob = ({ lease, by, status, set }: Settlement): Ending => ({
  lease,
  by,
  status,
  isCrash: by === 'reclaimer' && set.failKind === 'crashed',
});

const ofTask = ({ lease, by, status, failure }: TaskSettlement): Ending => ({
  lease,
  by,
  status,
  isCrash: by === 'reclaimer' && failure?.kind === 'crashed',
});

/** The memory store, with a judge beside it who sees each write as it happens. */
export function watchedServer(options: ServerOptions): Server {
  const { store, judge, processOf } = options;
  const { instances, reactive } = store;
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
    reactive: {
      useGlobals: () => undefined,
      check: (where, plan) => reactive.check(where, plan),
      prepare: (plans) => reactive.prepare(plans),
      planning: reactive.planning,
      tasks: (plans) => watchedTasks(options, plans),
      planner: new Proxy(reactive.planner, {
        get: (of, property) => {
          const value: unknown = Reflect.get(of, property, of);
          if (typeof value !== 'function') return value;
          return async (...given: unknown[]): Promise<unknown> => {
            const answer: unknown = await Reflect.apply(value, of, given);
            if (property === 'saveTokens' && answer === true) checkResumePoint(store, judge);
            return answer;
          };
        },
      }),
    },
    documents: (place) => store.documents(place),
    acquire: () => store.acquire(),
    release: () => store.release(),
    watch: (handlers) => store.watch(handlers),
    transaction: (work) => store.transaction(work),
    isTransaction: (value) => store.isTransaction(value),
  };
}

/** A rule of the database refuses the whole statement for one of its rows. */
function refusePoisoned(poisoned: ReadonlySet<string>, ids: readonly string[]): void {
  const bad = ids.find((id) => poisoned.has(id));
  if (bad !== undefined) throw new StoreError(`settle: the database refuses ${bad}.`, { transient: false });
}

/** What every kind of work has in common: the judge sees who takes it, and how it ends. */
function watchedWork<W extends Work, S extends { readonly lease: Lease }>(
  work: WorkStore<W, S, MemoryTransaction>,
  endingOf: (settlement: S) => Ending,
  { judge, poisoned }: ServerOptions,
): Pick<WorkStore<W, S, MemoryTransaction>, 'claim' | 'settle' | 'settleIn'> {
  return {
    claim: async (request) => {
      const answer = await work.claim(request);
      judge.claimed(answer.jobs, request.token);
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
    ...watchedWork(jobs, ofJob, options),
    insert: async (given, transaction) => {
      const inserted = await jobs.insert(given, transaction);
      for (const { job, outcome } of inserted)
        if (outcome === 'created') options.judge.created(job.id, job.name, job.uniqueKey, job.leaseToken);
      return inserted;
    },
  };
}

function watchedTasks(
  options: ServerOptions,
  plans: () => ReadonlyMap<string, TaskPlan>,
): TaskStore<MemoryTransaction> {
  const tasks = options.store.reactive.tasks(plans);
  return { ...tasks, ...watchedWork(tasks, ofTask, options) };
}

const always = (): boolean => true;
