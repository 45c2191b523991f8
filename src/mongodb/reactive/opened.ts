import type { ClientSession } from 'mongodb';
import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import type { Partition, Partitioning } from '../../store/reactive/partitions.js';
import type { PlanStore, ReactiveStore, Source, TaskPlan, TaskStore } from '../../store/reactive/reactive.js';
import { literal, run, type Mongo } from '../context.js';
import { Windows } from '../slices.js';
import * as claiming from './claim.js';
import { clean } from './plan/clean.js';
import { depths } from './query/depths.js';
import { historySince, openFeed } from './feed.js';
import { forgetting } from './forget.js';
import { mongodbFetcher } from './query/fetch.js';
import { checkPlan } from './plan/filter.js';
import * as finding from './query/find.js';
import * as holding from './hold.js';
import * as insight from './query/insight.js';
import * as planning from './plan/plan.js';
import { checkKeyed } from './keyed.js';
import { WHOLE } from './partition.js';
import { partitioning } from './partitioning.js';
import { planTogether } from './plan/together.js';
import { definedSources, plannerStore } from './registry.js';
import { reprocess, retryMany } from './plan/reset.js';
import type { Located } from './query/select.js';
import { settle, settleIn } from './settle.js';
import { MongodbSources, nameOfSource, type SourceOf } from './sources.js';
import * as walking from './plan/walk.js';

/** Everything about reactive tasks that a process which only enqueues does without. */
export interface OpenReactive extends Omit<ReactiveStore<ClientSession>, 'check' | 'useGlobals'> {
  readonly sources: MongodbSources;
  readonly partitioning: Partitioning;
}

export function openReactive(
  mongo: () => Mongo,
  tasksOf: (collection: string) => string,
  create: boolean | 'unchecked',
): OpenReactive {
  const sources = new MongodbSources(mongo, tasksOf, create);
  return {
    sources,
    planner: plannerStore(mongo, WHOLE),
    prepare: async (plans) => {
      if (plans.length > 0) needChangeStreams(mongo());
      await run('prepare tasks', async () => {
        for (const plan of plans) {
          const where = `reactiveTask(${show(plan.task)})`;
          // Check again: a store that was given as a URL did not exist when the task was defined.
          checkPlan(where, plan);
          checkKeyed(where, plan, mongo());
          await sources.prepare(where, plan);
          await planning.ask(where, sources, plan);
        }
      });
    },
    planning: planStore(mongo, sources, WHOLE),
    partitioning: {
      ...partitioning(mongo),
      within: (partition) => ({
        planner: plannerStore(mongo, partition),
        planning: planStore(mongo, sources, partition),
      }),
    },
    forgetting: forgetting(sources),
    tasks: (plans) => taskStore(sources, plans),
  };
}

function planStore(mongo: () => Mongo, sources: MongodbSources, partition: Partition): PlanStore {
  return {
    plan: (plan, ids, limitMs, trace) => planning.plan(sources, plan, ids, limitMs, trace),
    planTogether: (plans, batch, limitMs, trace) => planTogether(sources, plans, batch, limitMs, trace),
    unmatch: (plan, ids, limitMs) => planning.unmatch(sources, plan, ids, limitMs),
    park: (plan, poisoned) => planning.park(sources, plan, poisoned),
    size: (source) => walking.size(sources, source),
    documents: (source, after, limit) => walking.documents(sources, source, after, limit, partition),
    known: (plan, after, limit) => walking.known(sources, plan, after, limit, partition),
    clean: (plan, scope) => clean(sources, plan, scope, partition),
    reprocess: (plan, which) => reprocess(sources, plan, which, partition),
    historySince: () => historySince(mongo()),
    openFeed: (request) => openFeed(sources, request, partition),
  };
}

function needChangeStreams(mongo: Mongo): void {
  if (mongo.transactions) return;
  throw new OptionError(
    'This MongoDB server is standalone, and reactive tasks need the change streams of a replica set; one node is enough.',
  );
}

function taskStore(
  sources: MongodbSources,
  plans: () => ReadonlyMap<string, TaskPlan>,
): TaskStore<ClientSession> {
  const fetcher = mongodbFetcher(() => sources);
  const memory: claiming.ClaimMemory = { windows: new Windows(), turns: new Map() };
  /** Sources of tasks that other instances defined, learned from the registry. */
  const elsewhere = new Map<string, Source>();
  const sourceOf: SourceOf = (task) => {
    const source = plans().get(task)?.source ?? elsewhere.get(task);
    if (source !== undefined) return source;
    throw new OptionError(
      `The reactive task ${show(task)} is not defined on this instance, nor known from another one.`,
    );
  };
  const located = async (): Promise<Located> => {
    const defined = await run('read tasks', () => definedSources(globals()));
    for (const { task, source } of defined) elsewhere.set(task, source);
    for (const plan of plans().values()) elsewhere.set(plan.task, plan.source);
    return [...elsewhere].map(([task, source]) => ({ task, source }));
  };
  const everywhere = async (): Promise<readonly Source[]> => [
    ...new Map((await located()).map(({ source }) => [nameOfSource(source), source])).values(),
  ];
  const globals = (): Mongo['globals'] => sources.mongo.globals;
  return {
    peek: (tasks) => claiming.look(sources, plans(), tasks),
    claim: (request) => claiming.claim(sources, plans(), memory, request),
    claimedUnder: (instance, token) => claiming.claimedUnder(sources, plans(), instance, token),
    settle: (settlements) => settle(sources, settlements, sourceOf),
    settleIn: (settlement, session) => settleIn(sources, settlement, sourceOf, session),
    held: (leases) => holding.held(sources, leases, sourceOf),
    settledUnder: (lease) => holding.settledUnder(sources, lease, sourceOf),
    begin: (lease) => holding.begin(sources, lease, sourceOf),
    heldBy: async (instance, limit) => holding.heldBy(sources, await everywhere(), instance, limit),
    strays: async (query) => holding.strays(sources, await everywhere(), query),
    fetch: (request) => fetcher.fetch(request),
    fetchAll: (request) => fetcher.fetchAll(request),
    find: async (filter, page) => finding.find(sources, filter, page, await located()),
    cursorKey: finding.cursorKey,
    depths: async (request) => depths(sources, request, await located()),
    count: async (filter, most = Infinity) => finding.count(sources, filter, await located(), most),
    retryMany: async (filter) => retryMany(sources, filter, await located()),
    stats: async (cap) => insight.stats(sources, await located(), cap),
    failures: async (limit, task) => {
      const meant = (await located()).filter((one) => task === undefined || one.task === task);
      return insight.failures(sources, meant, limit);
    },
    document: (record) => insight.document(sources, record, sourceOf(record.name)),
    pauses: () => insight.pauses(sources.mongo),
    pause: async (task, until) => {
      // A throttle neither ends a pause that was requested nor shortens another throttle.
      const paused = { $eq: [{ $type: '$until' }, 'null'] };
      const longest = { $cond: [paused, null, { $max: ['$until', literal(until ?? null)] }] };
      const pause = { kind: 'pause-task', name: literal(task), until: until === undefined ? null : longest };
      await run('pause', () =>
        globals().updateOne({ _id: `pause-task:${task}` }, [{ $set: pause }], { upsert: true }),
      );
    },
    resume: async (task) => {
      await run('resume', () => globals().deleteOne({ _id: `pause-task:${task}` }));
    },
  };
}
