import { OptionError, reasonOf } from '../../core/errors.js';
import type { TaskRecord } from '../../core/records/task.js';
import type { Partition, Partitioning } from '../../store/reactive/partitions.js';
import type { PlanStore, ReactiveStore, Source, TaskPlan, TaskStore } from '../../store/reactive/reactive.js';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { run, classifyError } from '../connection/errors.js';
import { timeText } from '../connection/values.js';
import { pinned } from '../tables/arguments.js';
import * as claiming from './claim.js';
import { clean, reprocess } from './plan/clean.js';
import { depths } from './query/depths.js';
import { dropTriggers, leftoverTables } from './feed/leftovers.js';
import { openFeed } from './feed/feed.js';
import { limitOutbox, outboxOf } from './feed/outbox.js';
import { forgetting } from './forget.js';
import { sqlFetcher } from './query/fetch.js';
import { checkPlan } from './check.js';
import * as finding from './query/find.js';
import * as holding from './hold.js';
import * as insight from './query/insight.js';
import { documents, known, size } from './plan/pages.js';
import { WHOLE } from './partition.js';
import { partitioning } from './partitioning.js';
import { namesOf } from './place.js';
import { park, plan, planStatement, whereOf } from './plan/plan.js';
import { planTogether } from './plan/together.js';
import type { ShapeOf } from './record.js';
import { definedSources, plannerStore } from './registry.js';
import { settle, settleIn } from './settle.js';
import type { Shape } from '../tables/shape.js';
import { SqlSources } from './sources.js';
import { unmatch } from './plan/unmatch.js';

/** Rejects a definition that the server does not understand. Reads no row, but evaluates each value once. */
async function ask(sources: SqlSources, of: TaskPlan, shape: Shape): Promise<void> {
  const { text, args } = planStatement(sources.sql, shape, of, [], false);
  const values = args.expressions.map((expression) => `(${expression}::text)`).join(', ');
  try {
    const { driver } = sources.sql;
    await pinned(driver, namesOf(sources.sql).pinned, text, args);
    const read = `select to_json(value)::text from (values ${values}) as v(value)`;
    await pinned(driver, namesOf(sources.sql).pinned, read, args);
  } catch (error) {
    const problem = classifyError('prepare tasks', error);
    if ('transient' in problem && problem.transient === true) throw problem;
    const reason = reasonOf(error);
    throw new OptionError(`${whereOf(of)}: PostgreSQL refuses filter or watchProjection: ${reason}`, {
      cause: error,
    });
  }
}

function planStore(sources: SqlSources, partition: Partition): PlanStore {
  return {
    plan: (of, ids, limitMs, trace) => plan(sources, of, ids, limitMs, partition, trace),
    planTogether: (plans, batch, limitMs, trace) =>
      planTogether(sources, plans, batch, limitMs, partition, trace),
    unmatch: (of, ids, limitMs) => unmatch(sources, of, ids, limitMs, partition),
    park: (of, poisoned) => park(sources, of, poisoned),
    size: (source) => size(sources, source),
    documents: (source, after, limit) => documents(sources, source, after, limit, partition),
    known: (of, after, limit) => known(sources, of, after, limit, partition),
    clean: (of, scope) => clean(sources, of, scope, partition),
    reprocess: (of, which) => reprocess(sources, of, which, partition),
    outbox: () => run('read the outbox', () => outboxOf(sources.sql)),
    openFeed: (request) => openFeed(sources, request, partition),
  };
}

/** Everything about reactive tasks that a process which only enqueues does without. */
export interface OpenReactive extends Omit<ReactiveStore<Queryable>, 'check' | 'useGlobals'> {
  readonly partitioning: Partitioning;
  leftoverTables(): Promise<readonly string[]>;
  dropTriggers(collection: string): Promise<boolean>;
}

export function openReactive(sql: () => Sql, createTriggers: boolean, outboxLimit: number): OpenReactive {
  const sources = new SqlSources(sql, createTriggers);
  return {
    leftoverTables: () => leftoverTables(sources),
    dropTriggers: (collection) => dropTriggers(sources, collection),
    planner: plannerStore(sources, WHOLE),
    prepare: (plans) =>
      run('prepare tasks', async () => {
        if (plans.length > 0) await limitOutbox(sources.sql, outboxLimit);
        for (const one of plans) {
          const where = whereOf(one);
          // Checked again: if the store was given as a URL, it did not exist when the task was defined.
          checkPlan(where, one);
          await ask(sources, one, await sources.prepare(where, one.source));
        }
      }),
    planning: planStore(sources, WHOLE),
    partitioning: {
      ...partitioning(sources),
      within: (partition) => ({
        planner: plannerStore(sources, partition),
        planning: planStore(sources, partition),
      }),
    },
    forgetting: forgetting(sources),
    tasks: (plans) => taskStore(sources, plans),
  };
}

function taskStore(sources: SqlSources, plans: () => ReadonlyMap<string, TaskPlan>): TaskStore<Queryable> {
  const fetcher = sqlFetcher(sources);
  /** Tables by task, as far as they are known here. */
  const shapes = new Map<string, Shape>();
  const shapeOf: ShapeOf = (task) => shapes.get(task);
  const learn = async (
    tasks: Iterable<{ readonly task: string; readonly source: Source }>,
  ): Promise<void> => {
    for (const { task, source } of tasks) {
      const shape = await sources.open(source);
      if (shape !== undefined) shapes.set(task, shape);
    }
  };
  const located = async (): Promise<finding.Located> => {
    const all = await definedSources(sources.sql);
    for (const one of plans().values()) all.set(one.task, one.source);
    const list = [...all].map(([task, source]) => ({ task, source }));
    await learn(list);
    return list;
  };
  return {
    peek: (tasks) => claiming.look(sources.sql, tasks, plans()),
    claim: async (request) => {
      await learn(plans().values());
      return claiming.claim(sources, plans(), shapeOf, request);
    },
    claimedUnder: (instance, token) => claiming.claimedUnder(sources, plans(), shapeOf, instance, token),
    settle: (settlements) => settle(sources.sql, settlements),
    settleIn: (settlement, transaction) => settleIn(sources.sql, settlement, transaction),
    held: (leases) => holding.held(sources.sql, leases, shapeOf),
    settledUnder: (lease) => holding.settledUnder(sources.sql, lease),
    begin: (lease) => holding.begin(sources.sql, lease),
    heldBy: (instance, limit) => holding.heldBy(sources.sql, instance, limit),
    strays: (query) => holding.strays(sources.sql, query),
    fetch: (request) => fetcher.fetch(request),
    fetchAll: (request) => fetcher.fetchAll(request),
    find: async (filter, page) => {
      const found = await finding.find(sources, filter, page, await located(), shapeOf);
      const withKey = (record: TaskRecord): TaskRecord => {
        const key = shapeOf(record.task)?.key;
        return key === undefined ? record : { ...record, sourceKey: key.map(({ name }) => name) };
      };
      return { ...found, tasks: found.tasks.map(withKey) };
    },
    cursorKey: finding.cursorKey,
    depths: (request) => depths(sources.sql, request),
    count: async (filter, most = Infinity) => finding.count(sources, filter, await located(), most),
    retryMany: async (filter) => finding.retryMany(sources, filter, await located()),
    stats: (cap) => insight.stats(sources.sql, cap),
    failures: (limit, task) => insight.failures(sources.sql, limit, task),
    document: async (record) => {
      const home = (await located()).find(({ task }) => task === record.name);
      return home && insight.document(sources, record, home.source);
    },
    pauses: () => insight.pauses(sources.sql),
    pause: async (task, until) => {
      const { driver, names } = sources.sql;
      // A throttle neither ends a pause that a user requested, nor shortens another throttle.
      const longest = `case when p.until is null or excluded.until is null then null else greatest(p.until, excluded.until) end`;
      await run('pause', () =>
        driver.query(
          `insert into ${names.pauses} as p (kind, name, until) values ('tasks', $1::text, $2::text::timestamptz)
           on conflict (kind, name) do update set until = ${longest}`,
          [task, until === undefined ? null : timeText(until)],
        ),
      );
    },
    resume: async (task) => {
      const { driver, names } = sources.sql;
      await run('resume', () =>
        driver.query(`delete from ${names.pauses} where kind = 'tasks' and name = $1::text`, [task]),
      );
    },
  };
}
