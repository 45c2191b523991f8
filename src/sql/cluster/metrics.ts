import {
  KEEP_COUNTS_DAYS,
  KEEP_MINUTES_MS,
  KEEP_SHARES_MS,
  PEAKS,
  SUMS,
  type Cell,
  type MetricsStore,
  type SeriesPoint,
  type SeriesQuery,
  type Share,
  type Shared,
  type Waiting,
} from '../../store/metrics.js';
import type { Sql } from '../connection/connection.js';
import { run } from '../connection/errors.js';
import { ms } from '../jobs/record.js';
import { rows } from '../connection/rows.js';
import { timeText } from '../connection/values.js';

const NOW = 'statement_timestamp()';
const TODAY = `floor(extract(epoch from ${NOW}) / 86400)::integer`;
const before = (keptMs: number): string => `${NOW} - ${String(keptMs)} * interval '1 millisecond'`;

/** The share id under which backlogs are saved: they belong to no instance. */
const NOBODY = '';

/**
 * One statement: a share that was already counted adds nothing, and a reader sees all of a share or none of it. Rows
 * are written in key order, so that two instances never deadlock.
 *
 * $1 id · $2 number · $3 share · $4 growth
 */
const pushStatement = ({ names: { metricCounts, metricShares } }: Sql): string => `
  with heard as (
    insert into ${metricShares} as s (id, number, at, share)
    values ($1::text, $2::bigint, ${NOW}, $3::text::jsonb)
    on conflict (id) do update set number = excluded.number, at = excluded.at, share = excluded.share
    where s.number < excluded.number
    returning 1
  )
  insert into ${metricCounts} as c (series, counts, day)
  select g.series, g.counts, ${TODAY} from jsonb_each($4::text::jsonb) as g(series, counts)
  where exists (select from heard) order by g.series collate "C"
  on conflict (series) do update set day = excluded.day, counts = (
    select jsonb_object_agg(f.field, coalesce((c.counts ->> f.field)::double precision, 0)
      + coalesce((excluded.counts ->> f.field)::double precision, 0))
    from jsonb_object_keys(c.counts || excluded.counts) as f(field))`;

const readStatement = ({ names: { metricCounts, metricShares } }: Sql): string => `
  select json_build_object(
    'counts', (select coalesce(json_agg(json_build_array(series, counts)), '[]') from ${metricCounts}),
    'shares', (select coalesce(json_agg(json_build_array(id, share, ${ms(`${NOW} - at`)})), '[]') from ${metricShares})
  )::text as json`;

interface Read {
  readonly counts: readonly [series: string, counts: Readonly<Record<string, number>>][];
  readonly shares: readonly [id: string, share: Omit<Shared, 'id' | 'ageMs'>, ageMs: number][];
}

const sum = (field: string): string => `'${field}', coalesce(sum(c."${field}"), 0)`;
const peak = (field: string): string => `'${field}', coalesce(max(c."${field}"), 0)`;
const NUMBERS = [...SUMS, ...PEAKS, 'due', 'lagMs'].map((field) => `"${field}" double precision`).join(', ');

/** $1 from · $2 to · $3 kind · $4 name */
const seriesStatement = ({ names: { metricMinutes } }: Sql): string => `
  select json_build_object('at', ${ms('m.minute')}, 'kind', c.kind, 'name', c.name,
    ${[...SUMS.map(sum), ...PEAKS.map(peak)].join(', ')}, 'due', max(c.due), 'lagMs', max(c."lagMs"))::text as json
  from ${metricMinutes} m cross join lateral jsonb_to_recordset(m.cells) as c(kind text, name text, ${NUMBERS})
  where m.minute between $1::text::timestamptz and $2::text::timestamptz
    and c.kind = coalesce($3::text, c.kind) and c.name = coalesce($4::text, c.name)
  group by m.minute, c.kind, c.name
  order by m.minute, c.kind collate "C", c.name collate "C"`;

type SeriesRow = Omit<SeriesPoint, 'at' | 'backlog' | 'lagMs'> & {
  readonly at: number;
  readonly due: number | null;
  readonly lagMs: number | null;
};

const pointOf = ({ at, due, lagMs, ...rest }: SeriesRow): SeriesPoint => ({
  ...rest,
  at: new Date(at),
  ...(due === null ? {} : { backlog: due }),
  ...(lagMs === null ? {} : { lagMs }),
});

export function metricsStore(sql: () => Sql): MetricsStore {
  const save = async (
    share: string,
    minutes: readonly { readonly at: Date; readonly cells: readonly (Cell | Waiting)[] }[],
  ): Promise<void> => {
    const text = `insert into ${sql().names.metricMinutes} (minute, share, cells)
      select m.at::timestamptz, $1::text, m.cells from json_to_recordset($2::text::json) as m(at text, cells jsonb)
      on conflict (minute, share) do update set cells = excluded.cells`;
    const given = minutes.map(({ at, cells }) => ({ at: timeText(at), cells }));
    await run('save metrics', () => sql().driver.query(text, [share, JSON.stringify(given)]));
  };

  return {
    push: async ({ id, number, growth, ...share }: Share) => {
      const values = [id, number, JSON.stringify(share), JSON.stringify(Object.fromEntries(growth))];
      await run('push metrics', () => sql().driver.query(pushStatement(sql()), values));
    },
    read: async () => {
      const [read] = await run('read metrics', () => rows<Read>(sql().driver, readStatement(sql())));
      return {
        counts: new Map(read?.counts),
        shares: (read?.shares ?? []).map(([id, share, ageMs]) => ({ id, ...share, ageMs })),
      };
    },
    leave: async (id) => {
      const text = `delete from ${sql().names.metricShares} where id = $1::text`;
      await run('leave', () => sql().driver.query(text, [id]));
    },
    saveMinutes: save,
    saveWaiting: (at, waiting) => save(NOBODY, [{ at, cells: waiting }]),
    series: async ({ from, to, kind, name }: SeriesQuery) => {
      const values = [timeText(from), timeText(to), kind ?? null, name ?? null];
      const found = await run('read metrics', () =>
        rows<SeriesRow>(sql().driver, seriesStatement(sql()), values),
      );
      return found.map(pointOf);
    },
    forget: async () => {
      const { driver, names } = sql();
      await run('delete old metrics', async () => {
        await driver.query(`delete from ${names.metricShares} where at < ${before(KEEP_SHARES_MS)}`);
        await driver.query(
          `delete from ${names.metricCounts} where day < ${TODAY} - ${String(KEEP_COUNTS_DAYS)}`,
        );
      });
    },
  };
}

/** Part of the sweep: deletes minutes that are older than `KEEP_MINUTES_MS`. */
export async function sweepMinutes({ driver, names }: Sql): Promise<void> {
  await driver.query(`delete from ${names.metricMinutes} where minute < ${before(KEEP_MINUTES_MS)}`);
}
