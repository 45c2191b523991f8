import { OptionError, reasonOf } from '../../core/errors.js';
import { show } from '../../core/options.js';
import type { TaskRecord } from '../../core/records/task.js';
import type { ReactiveStore, Source, TaskPlan, TaskStore } from '../../store/reactive.js';
import type { Queryable } from '../connection/driver.js';
import { run, classifyError } from '../connection/errors.js';
import { refusesText, timeText } from '../connection/values.js';
import { pinned } from '../tables/arguments.js';
import * as claiming from './claim.js';
import { clean, reprocess } from './plan/clean.js';
import { depths } from './query/depths.js';
import { openFeed } from './feed/feed.js';
import { SqlFetcher } from './query/fetch.js';
import { checkFilter } from './plan/filter.js';
import * as finding from './query/find.js';
import * as holding from './hold.js';
import * as insight from './query/insight.js';
import { documents, known, size } from './plan/pages.js';
import { namesOf } from './place.js';
import { park, plan, planStatement, whereOf } from './plan/plan.js';
import type { ShapeOf } from './record.js';
import { plannerStore } from './registry.js';
import { settle, settleIn } from './settle.js';
import { parseName, type Shape } from '../tables/shape.js';
import { checkProjection } from './plan/snapshot.js';
import type { SqlSources } from './sources.js';
import { unmatch } from './plan/unmatch.js';

function check(where: string, of: TaskPlan): TaskPlan {
  const { database, collection } = of.source;
  if (database !== undefined)
    throw new OptionError(
      `${where}: database applies to MongoDB only. This store watches tables of its own database; name a schema in collection: ` +
        "'sales.orders'.",
    );
  const fault = refusesText(of.task) ?? refusesText(collection);
  if (fault !== null) throw new OptionError(`${where}: task or collection ${fault}; use another name.`);
  parseName(where, collection);
  checkFilter(where, of.filter);
  checkProjection(where, 'watchProjection', of.watchProjection);
  return of;
}

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

export function reactiveStore(sources: SqlSources): ReactiveStore<Queryable> {
  const planner = plannerStore(sources);
  return {
    planner,
    check,
    useGlobals: (collection) => {
      throw new OptionError(
        `reactive.globalsCollection (${show(collection)}) applies to MongoDB only; this store keeps everything in its \`schema\`.`,
      );
    },
    prepare: (plans) =>
      run('prepare tasks', async () => {
        for (const one of plans) {
          const where = whereOf(one);
          // Checked again: if the store was given as a URL, it did not exist when the task was defined.
          check(where, one);
          await ask(sources, one, await sources.prepare(where, one.source));
        }
      }),
    planning: {
      plan: (of, ids, limitMs, trace) => plan(sources, of, ids, limitMs, trace),
      unmatch: (of, ids, limitMs) => unmatch(sources, of, ids, limitMs),
      park: (of, poisoned) => park(sources, of, poisoned),
      size: (source) => size(sources, source),
      documents: (source, after, limit) => documents(sources, source, after, limit),
      known: (of, after, limit) => known(sources, of, after, limit),
      clean: (of, scope) => clean(sources, of, scope),
      reprocess: (of, which) => reprocess(sources, of, which),
      openFeed: (request) => openFeed(sources, request),
    },
    tasks: (plans) => taskStore(sources, planner, plans),
  };
}

function taskStore(
  sources: SqlSources,
  planner: ReactiveStore['planner'],
  plans: () => ReadonlyMap<string, TaskPlan>,
): TaskStore<Queryable> {
  const fetcher = new SqlFetcher(sources);
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
    const all = new Map((await planner.plans()).map((one) => [one.plan.task, one.plan.source]));
    for (const one of plans().values()) all.set(one.task, one.source);
    const list = [...all].map(([task, source]) => ({ task, source }));
    await learn(list);
    return list;
  };
  return {
    peek: (tasks) => claiming.look(sources.sql, tasks),
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
