import type { ClientSession } from 'mongodb';
import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import type { PlannerStore, ReactiveStore, Source, TaskPlan, TaskStore } from '../../store/reactive.js';
import { literal, run, type Mongo } from '../context.js';
import * as claiming from './claim.js';
import { clean } from './plan/clean.js';
import { depths } from './query/depths.js';
import { historySince, openFeed } from './feed.js';
import { MongodbFetcher } from './query/fetch.js';
import { checkFilter, checkProjection } from './plan/filter.js';
import * as finding from './query/find.js';
import * as holding from './hold.js';
import * as insight from './query/insight.js';
import * as planning from './plan/plan.js';
import { plannerStore } from './registry.js';
import { reprocess, retryMany } from './plan/reset.js';
import type { Located } from './query/select.js';
import { settle, settleIn, type SourceOf } from './settle.js';
import { nameOfSource, type MongodbSources } from './sources.js';
import * as walking from './plan/walk.js';

function check(where: string, plan: TaskPlan): TaskPlan {
  checkFilter(where, plan.filter);
  checkProjection(where, plan.watchProjection);
  return plan;
}

export function reactiveStore(
  mongo: () => Mongo,
  sources: MongodbSources,
  useGlobals: (collection: string) => void,
): ReactiveStore<ClientSession> {
  const planner = plannerStore(mongo);
  return {
    planner,
    useGlobals,
    check,
    prepare: async (plans) => {
      if (plans.length > 0) needChangeStreams(mongo());
      await run('prepare tasks', async () => {
        for (const plan of plans) {
          const where = `reactiveTask(${show(plan.task)})`;
          // Check again: a store that was given as a URL did not exist when the task was defined.
          check(where, plan);
          await sources.prepare(where, plan);
          await planning.ask(where, sources, plan);
        }
      });
    },
    planning: {
      plan: (plan, ids, limitMs, trace) => planning.plan(sources, plan, ids, limitMs, trace),
      unmatch: (plan, ids, limitMs) => planning.unmatch(sources, plan, ids, limitMs),
      park: (plan, poisoned) => planning.park(sources, plan, poisoned),
      size: (source) => walking.size(sources, source),
      documents: (source, after, limit) => walking.documents(sources, source, after, limit),
      known: (plan, after, limit) => walking.known(sources, plan, after, limit),
      clean: (plan, scope) => clean(sources, plan, scope),
      reprocess: (plan, which) => reprocess(sources, plan, which),
      historySince: () => historySince(mongo()),
      openFeed: (request) => openFeed(sources, request),
    },
    tasks: (plans) => taskStore(sources, planner, plans),
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
  planner: PlannerStore,
  plans: () => ReadonlyMap<string, TaskPlan>,
): TaskStore<ClientSession> {
  const fetcher = new MongodbFetcher(() => sources);
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
    for (const { plan } of await planner.plans()) elsewhere.set(plan.task, plan.source);
    for (const plan of plans().values()) elsewhere.set(plan.task, plan.source);
    return [...elsewhere].map(([task, source]) => ({ task, source }));
  };
  const everywhere = async (): Promise<readonly Source[]> => [
    ...new Map((await located()).map(({ source }) => [nameOfSource(source), source])).values(),
  ];
  const globals = (): Mongo['globals'] => sources.mongo.globals;
  return {
    peek: (tasks) => claiming.look(sources, plans(), tasks),
    claim: (request) => claiming.claim(sources, plans(), request),
    claimedUnder: (instance, token) => claiming.claimedUnder(sources, plans(), instance, token),
    settle: (settlements) => settle(sources, settlements, sourceOf),
    settleIn: (settlement, session) => settleIn(sources, settlement, sourceOf, session),
    held: (leases) => holding.held(sources, leases, sourceOf),
    settledUnder: (lease) => holding.settledUnder(sources, lease, sourceOf),
    begin: (lease) => holding.begin(sources, lease, sourceOf),
    heldBy: async (instance, limit) => holding.heldBy(sources, await everywhere(), instance, limit),
    strays: async (query) => holding.strays(sources, await everywhere(), query),
    fetch: (request) => fetcher.fetch(request),
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
