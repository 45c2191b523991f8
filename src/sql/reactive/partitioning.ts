/** How many partitions there are, and who leads those from 1 on. */
import type { Division, Partitioning } from '../../store/reactive/partitions.js';
import type { Leader } from '../../store/port.js';
import type { TaskState, Term } from '../../store/reactive/reactive.js';
import type { Queryable } from '../connection/driver.js';
import { run } from '../connection/errors.js';
import { rows } from '../connection/rows.js';
import { namesOf } from './place.js';
import { toState } from './registry.js';
import type { SqlSources } from './sources.js';

interface LeaderRow extends Leader {
  readonly partition: number;
}

interface StateRow {
  readonly partition: number;
  readonly state: Record<string, unknown>;
  readonly wanted: number;
  readonly version: number;
}

interface AsideRow {
  readonly partition: number;
  readonly task: string;
  readonly keys: readonly string[];
}

const range = (length: number): readonly number[] => Array.from({ length }, (_, index) => index);

/** The states of a table, locked: a request that comes meanwhile is counted after the division. */
const statesIn = (table: string, partition: string): string =>
  `select json_build_object('partition', ${partition}, 'state', state, 'wanted', wanted, 'version', handler_version)::text as json
   from ${table} for update`;

const leadersIn = (table: string): string =>
  `select json_build_object('partition', partition, 'life', life, 'instanceId', instance_id, 'term', term)::text as json
   from ${table}`;

/** The keys of blocked documents are among the checkpoints, under `aside:` and, from 1 on, after the partition. */
const asideIn = (table: string): string =>
  `select json_build_object('partition', coalesce((regexp_match(source, '^partition (\\d+):aside:'))[1]::integer, 0),
     'task', checkpoint -> 'task', 'keys', checkpoint -> 'keys')::text as json
   from ${table} where checkpoint is not null and source ~ '^(partition \\d+:)?aside:'`;

async function divide(
  sources: SqlSources,
  on: Queryable,
  { life, term }: Term,
  { from, to, ended, merge }: Division,
): Promise<boolean> {
  const names = namesOf(sources.sql);
  const [leads] = await rows<number>(
    on,
    `select term::text as json from ${names.planner}
     where life = $1::text and term = $2::bigint and partitions = $3::integer for update`,
    [life, term, from],
  );
  // Nobody can take a partition that was never led either, while this lock is held.
  await on.query(`lock table ${names.partitions} in share row exclusive mode`);
  const leaders = await rows<LeaderRow>(on, leadersIn(names.partitions));
  const isLed = leaders.some((one) => one.life !== null && ended.get(one.partition) !== one.term);
  if (leads === undefined || isLed) return false;
  const stored = [
    ...(await rows<StateRow>(on, statesIn(names.states, '0'))),
    ...(await rows<StateRow>(on, statesIn(names.partitionStates, 'partition'))),
  ];
  const aside = await rows<AsideRow>(on, asideIn(names.checkpoints));
  const states = merge(
    range(from).map((index) => ({
      states: stored.filter(({ partition }) => partition === index).map(toState),
      blocked: aside
        .filter(({ partition }) => partition === index)
        .map(({ task, keys }) => ({ task, documents: keys.map((key) => ({ key, id: key })) })),
    })),
  );
  await write(sources, on, to, states);
  return true;
}

/** Each partition begins under a term that no instance holds: what an earlier leader still writes is refused. */
async function write(
  sources: SqlSources,
  on: Queryable,
  to: number,
  states: readonly TaskState[],
): Promise<void> {
  const names = namesOf(sources.sql);
  const given = JSON.stringify(
    states.map(({ wanted, handlerVersion, ...state }) => ({
      task: state.task,
      wanted,
      handlerVersion,
      state,
    })),
  );
  const each = `json_to_recordset($1::text::json) as g(task text, wanted bigint, "handlerVersion" bigint, state jsonb)`;
  await on.query(
    `update ${names.planner} set life = null, term = term + 1, idle = false, partitions = $1::integer, next = null`,
    [to],
  );
  await on.query(`update ${names.partitions} set life = null, term = term + 1, idle = false`);
  await on.query(
    `insert into ${names.partitions} (partition, instance_id, term)
     select n, '', 1 from generate_series(1, $1::integer - 1) n on conflict do nothing`,
    [to],
  );
  await on.query(
    `update ${names.checkpoints} c set checkpoint = null, term = p.term from ${names.planner} p
     where c.source !~ '^partition \\d+:'`,
  );
  await on.query(
    `update ${names.checkpoints} c set checkpoint = null, term = p.term from ${names.partitions} p
     where starts_with(c.source, 'partition ' || p.partition || ':')`,
  );
  await on.query(
    `update ${names.states} s set state = g.state, wanted = g.wanted, handler_version = g."handlerVersion",
       term = (select p.term from ${names.planner} p) from ${each} where s.task = g.task`,
    [given],
  );
  await on.query(`delete from ${names.partitionStates}`);
  await on.query(
    `insert into ${names.partitionStates} (partition, task, state, wanted, handler_version, term)
     select p.partition, g.task, g.state, g.wanted, g."handlerVersion", p.term
     from ${names.partitions} p cross join ${each} where p.partition < $2::integer`,
    [given, to],
  );
}

export function partitioning(sources: SqlSources): Omit<Partitioning, 'within'> {
  return {
    leaders: () =>
      run('read leaders', async () => {
        const { driver } = sources.sql;
        const found = await rows<LeaderRow>(driver, leadersIn(namesOf(sources.sql).partitions));
        return new Map(found.map((one) => [one.partition, one]));
      }),
    announce: ({ life, term }, next) =>
      run('announce partitions', async () => {
        const text = `update ${namesOf(sources.sql).planner} set next = $3::integer
          where life = $1::text and term = $2::bigint returning '1' as json`;
        return (await rows(sources.sql.driver, text, [life, term, next])).length === 1;
      }),
    divide: (term, division) =>
      run('divide planning', () =>
        sources.sql.driver.transaction((transaction) => divide(sources, transaction, term, division)),
      ),
  };
}
