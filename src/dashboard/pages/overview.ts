import type { JobStats, MillInstance, Planning, TaskStats } from '../../index.js';
import { may, type RequestContext } from '../request-context.js';
import type { InstanceRow, NameRow, Overview, WorkKind } from '../contract.js';
import { documentCounts } from '../kinds/documents.js';
import type { Mill } from '../options.js';
import { checkParameters, KINDS, one, oneOf } from '../http/parameters.js';
import {
  beginningOf,
  RANGES,
  runMs,
  seriesOf,
  sumOf,
  toPoint,
  waitMs,
  type Point,
  type Range,
} from './series.js';

/** Counting up to the cap is the most expensive part of the page. */
const COUNTS_MS = 5_000;

type Paused = Readonly<Record<'jobs' | 'tasks', ReadonlySet<string>>>;

interface Counted {
  readonly kind: WorkKind;
  readonly name: string;
  readonly counts: Readonly<Record<string, number>>;
  readonly capped: readonly string[];
}

const jobCounts = ({ names, capped }: JobStats): readonly Counted[] =>
  Object.entries(names).map(([name, counts]) => ({
    kind: 'jobs',
    name,
    counts: { ...counts },
    capped: capped.filter((one) => one.name === name).map(({ status }) => status),
  }));

const taskCounts = (stats: readonly TaskStats[]): readonly Counted[] =>
  stats.map(({ task, counts, capped }) => ({ kind: 'tasks', name: task, counts: { ...counts }, capped }));

/** Includes names without any work if a live instance runs them or they are paused. */
function rowsOf(
  counted: readonly Counted[],
  points: readonly Point[],
  instances: readonly MillInstance[],
  paused: Paused,
): readonly NameRow[] {
  const rows = new Map<string, Counted>();
  const key = ({ kind, name }: Pick<Counted, 'kind' | 'name'>): string => JSON.stringify([kind, name]);
  const add = (row: Counted): void => {
    if (!rows.has(key(row))) rows.set(key(row), row);
  };
  for (const row of counted) add(row);
  const known = (kind: 'jobs' | 'tasks', names: Iterable<string>): void => {
    for (const name of names) add({ kind, name, counts: {}, capped: [] });
  };
  const alive = instances.filter((instance) => instance.alive);
  for (const { names, tasks } of alive) {
    known('jobs', names);
    known('tasks', tasks);
  }
  known('jobs', paused.jobs);
  known('tasks', paused.tasks);
  const byName = new Map<string, Point[]>();
  for (const point of points) byName.set(key(point), [...(byName.get(key(point)) ?? []), point]);
  return [...rows.values()]
    .map((row) => {
      const sum = sumOf(byName.get(key(row)) ?? []);
      const runs = ({ names, tasks }: MillInstance): boolean =>
        (row.kind === 'tasks' ? tasks : names).includes(row.name);
      return {
        ...row,
        paused: row.kind !== 'documents' && paused[row.kind].has(row.name),
        done: sum.done,
        failed: sum.failed,
        waitMs: waitMs(sum),
        runMs: runMs(sum),
        instances: row.kind === 'documents' ? 0 : alive.filter(runs).length,
      };
    })
    .sort((a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind) || (a.name < b.name ? -1 : 1));
}

const toInstance = (
  { redactor }: RequestContext,
  { slots, names, tasks, ...instance }: MillInstance,
): InstanceRow => ({
  ...instance,
  names: names.map((name) => redactor.text(name)),
  tasks: tasks.map((name) => redactor.text(name)),
});

/** Text after a colon may be a message of the database and contain data. */
function complaintOf(context: RequestContext, text: string): string {
  const colon = text.indexOf(': ');
  return colon < 0 || may(context, 'payload')
    ? context.redactor.text(text)
    : `${context.redactor.text(text.slice(0, colon))}: see the reason with the right "payload"`;
}

/** So many of the last minutes count for the verdict. Every range contains them. */
const RECENT_MINUTES = 15;
/** With fewer ends than this, a share says little. */
const LEAST_ENDS = 10;
const TOO_MANY_FAILED = 0.1;

/** Says if too much work failed for good in the last minutes, and which name failed most. */
function failingOf({ redactor }: RequestContext, points: readonly Point[], now: Date): readonly string[] {
  const from = now.getTime() - RECENT_MINUTES * 60_000;
  const recent = points.filter(({ at }) => at.getTime() > from);
  const { done, failed } = sumOf(recent);
  const ends = done + failed;
  if (ends < LEAST_ENDS || failed < ends * TOO_MANY_FAILED) return [];
  const byName = new Map<string, number>();
  for (const { kind, name, failed: count } of recent) {
    const title = `${kind} ${redactor.text(name)}`;
    byName.set(title, (byName.get(title) ?? 0) + count);
  }
  const [most] = [...byName].sort(([, a], [, b]) => b - a);
  const [worst, count] = most ?? ['', 0];
  const share = Math.floor((failed / ends) * 100);
  return [
    `${String(share)} % of the work that ended in the last ${String(RECENT_MINUTES)} minutes failed for good ` +
      `(${String(failed)} of ${String(ends)}), ${String(count)} of them ${worst}`,
  ];
}

/** A process that only serves the dashboard need not be started, so "not started" is no problem here. */
function healthOf(
  context: RequestContext,
  instances: readonly MillInstance[],
  failing: readonly string[],
): Overview['health'] {
  const { reasons, troubles, wakeUp } = context.mill.health();
  const shown = (texts: readonly string[]): string[] => texts.map((text) => complaintOf(context, text));
  const own = shown(reasons.filter((reason) => reason !== 'not started'));
  const alone = instances.some(({ alive }) => alive) ? [] : ['no instance is alive, so no work runs'];
  const all = [...own, ...alone, ...failing];
  return {
    ok: all.length === 0,
    reasons: all,
    troubles: shown(troubles),
    ...(wakeUp === undefined ? {} : { wakeUp }),
  };
}

const plannerOf = (
  { redactor }: RequestContext,
  { leader, lagMs, reconciling }: Planning,
): Overview['planner'] => ({
  leader,
  lagMs,
  reconciling: reconciling.map(({ task, processed, total }) => ({
    task: redactor.text(task),
    done: processed,
    total,
  })),
});

/** Longer ranges read more minutes and change less, so they are cached longer. */
async function pointsOf({ mill, cache }: RequestContext, now: Date, range: Range): Promise<readonly Point[]> {
  const read = async (): Promise<readonly Point[]> =>
    (await mill.metrics.series({ from: beginningOf(now, range), to: now })).map(toPoint);
  return cache.get(`series ${range}`, read, RANGES[range].freshMs);
}

async function pausedOf(mill: Mill): Promise<Paused> {
  const [jobs, tasks] = await Promise.all([mill.jobs.paused(), mill.tasks.paused()]);
  return { jobs: new Set(jobs), tasks: new Set(tasks.map(({ task }) => task)) };
}

export async function overview(context: RequestContext, query: URLSearchParams): Promise<Overview> {
  checkParameters(query, ['range', 'kind', 'name']);
  const { mill } = context;
  const range = oneOf(query, 'range', Object.keys(RANGES) as Range[]) ?? '1h';
  const [kind, name] = [oneOf(query, 'kind', KINDS), one(query, 'name')];
  const now = await mill.time();
  const [points, stats, taskStats, documents, instances, paused, allPaused] = await Promise.all([
    pointsOf(context, now, range),
    context.cache.get('job counts', () => mill.jobs.stats(), COUNTS_MS),
    context.cache.get('task counts', () => mill.tasks.stats(), COUNTS_MS),
    context.cache.get('document counts', () => documentCounts(mill), COUNTS_MS),
    mill.instances(),
    pausedOf(mill),
    mill.paused(),
  ]);
  const planning = await mill.tasks.planning();
  const meant = points.filter(
    (point) => (kind === undefined || point.kind === kind) && (name === undefined || point.name === name),
  );
  const counted = [...jobCounts(stats), ...taskCounts(taskStats), ...documents];
  return {
    now: now.toISOString(),
    range,
    series: seriesOf(meant, now, range),
    paused: allPaused,
    names: rowsOf(counted, points, instances, paused).map((row) => ({
      ...row,
      name: context.redactor.text(row.name),
    })),
    instances: instances.map((instance) => toInstance(context, instance)),
    health: healthOf(context, instances, failingOf(context, points, now)),
    planner: plannerOf(context, planning),
  };
}
