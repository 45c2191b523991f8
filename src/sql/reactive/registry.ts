/** What outlives a planner: definitions, leadership, and the progress of reconciliation. */
import { createHash } from 'node:crypto';
import type { Partition } from '../../store/reactive/partitions.js';
import type { TaskAdvert } from '../../store/port.js';
import type {
  Checkpoint,
  PlannerStore,
  PublishedPlan,
  Source,
  TaskPlan,
  TaskState,
  Term,
} from '../../store/reactive/reactive.js';
import { message } from '../cluster/notifier.js';
import type { Sql } from '../connection/connection.js';
import { run } from '../connection/errors.js';
import { ms } from '../jobs/record.js';
import { rows } from '../connection/rows.js';
import { SequenceGaps, Position } from './feed/sequence-gaps.js';
import { tablesOf } from './partition.js';
import { namesOf, NOW } from './place.js';
import type { SqlSources } from './sources.js';
import { encoded, fromStoredPlan, storedFilter, toStoredPlan } from './plan/stored-plan.js';

const digest = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, 32);

/** A definition under the full name of its table, which is the same for every instance. */
async function published(
  sources: SqlSources,
  plan: TaskPlan,
): Promise<{ id: string; source: string; text: string; trigger: string }> {
  const source = await sources.nameOf(plan.source);
  const full = { ...plan, source: { collection: source } };
  const text = toStoredPlan(full);
  return {
    id: digest(text),
    source,
    text,
    trigger: digest(encoded([full.source, storedFilter(plan.filter) ?? null, plan.watchProjection ?? null])),
  };
}

const STATE_DATES = ['lastReconciledAt', 'lastCleanedAt', 'lastSeenAt', 'leftOutSince'] as const;

/** Dates are stored as texts. The counters that other instances raise are columns of their own. */
export function toState(row: { state: Record<string, unknown>; wanted: number; version: number }): TaskState {
  const dates = STATE_DATES.flatMap((field) => {
    const text = row.state[field];
    return typeof text === 'string' ? [[field, new Date(text)]] : [];
  });
  const { wanted, version: handlerVersion } = row;
  return { ...row.state, ...Object.fromEntries(dates), wanted, handlerVersion } as TaskState;
}

/** The resume point never needs to be stored: changes not planned yet are still in the table. */
const BEGINNING: Position = new Position(new SequenceGaps(), 0);

/** The table of each task, by its newest definition. Leaves out filters and options, which may be large. */
export const definedSources = (sql: Sql): Promise<Map<string, Source>> =>
  run('read tasks', async () => {
    const found = await rows<{ task: string; source: string }>(
      sql.driver,
      `select distinct on (task) json_build_object('task', task, 'source', source)::text as json
       from ${namesOf(sql).definitions} order by task, first_seen_at desc`,
    );
    return new Map(found.map(({ task, source }) => [task, { collection: source }]));
  });

export function plannerStore(sources: SqlSources, partition: Partition): PlannerStore {
  const sql = (): Sql => sources.sql;
  const names = (): ReturnType<typeof namesOf> => namesOf(sql());
  const query = <T>(text: string, values: (string | number | null)[] = []): Promise<readonly T[]> =>
    rows<T>(sql().driver, text, values);
  const tables = (): ReturnType<typeof tablesOf> => tablesOf(names(), partition);
  const { index, of } = partition;
  const holdsOffice = (): string =>
    `exists (select from ${tables().leaders} where ${tables().leader} and life = $1::text and term = $2::bigint)`;
  /** The states of partitions from 1 on have one more column. */
  const [column, value] = index === 0 ? ['', ''] : ['partition, ', `${String(index)}, `];
  const key = index === 0 ? 'task' : 'partition, task';

  /** A leader's writes carry its term, so that a former leader cannot undo what its successor wrote. */
  const keep = ({ term }: Term, name: string, value: object | undefined): Promise<boolean> =>
    run('save a checkpoint', async () => {
      const written = await query(
        `insert into ${names().checkpoints} as c (source, checkpoint, term) values ($1::text, $2::text::jsonb, $3::bigint)
         on conflict (source) do update set checkpoint = excluded.checkpoint, term = excluded.term
         where c.term <= excluded.term returning '1' as json`,
        [`${tables().prefix}${name}`, value === undefined ? null : JSON.stringify(value), term],
      );
      return written.length === 1;
    });

  const notifyPeers = async (news: boolean): Promise<void> => {
    const texts = ['tasks' as const, ...(news ? (['news'] as const) : [])].map((what) => message(what));
    await run('notify instances', () =>
      query(
        `select null as json from json_array_elements_text($2::text::json) as m(text), pg_notify($1::text, m.text)`,
        [sql().names.channel, JSON.stringify(texts)],
      ),
    );
  };

  return {
    publish: (plans) =>
      run('publish tasks', async () => {
        const adverts: TaskAdvert[] = [];
        for (const plan of plans) {
          const { id, source, text, trigger } = await published(sources, plan);
          await query(
            `insert into ${names().definitions} (task, id, source, plan, trigger, first_seen_at)
             values ($1::text, $2::text, $3::text, $4::text::jsonb, $5::text, ${NOW})
             on conflict (task, id) do nothing`,
            [plan.task, id, source, text, trigger],
          );
          adverts.push({ task: plan.task, definition: id, trigger, version: plan.evolution.handlerVersion });
        }
        return adverts;
      }),
    plans: (which) =>
      run('read tasks', async () => {
        const found = await query<{ id: string; plan: unknown; trigger: string; at: number }>(
          `select json_build_object('id', id, 'plan', plan, 'trigger', trigger, 'at', ${ms('first_seen_at')})::text as json
           from ${names().definitions} d where $1::text is null or exists (
             select from json_to_recordset($1::text::json) as w(task text, definition text)
             where w.task = d.task and w.definition = d.id)`,
          [which === undefined ? null : JSON.stringify(which)],
        );
        return found.map(({ id, plan, trigger, at }): PublishedPlan => ({
          id,
          plan: fromStoredPlan(plan),
          trigger,
          firstSeenAt: new Date(at),
        }));
      }),
    states: () =>
      run('read tasks', async () => {
        const found = await query<Parameters<typeof toState>[0]>(
          `select json_build_object('state', state, 'wanted', wanted, 'version', handler_version)::text as json
           from ${tables().states} where ${tables().own}`,
        );
        return found.map(toState);
      }),
    saveState: ({ term }, task, { wanted, handlerVersion, ...fields }) =>
      run('save a task', async () => {
        // Other instances may request a reconciliation at the same moment, and a version never goes back.
        const written = await query(
          `with whole as materialized (select $2::text::jsonb ? 'definition' as yes),
           -- Locked, so that it is still there when it is written: it may be forgotten at this moment.
           kept as materialized (select task from ${tables().states} where ${tables().own} and task = $1::text for update),
           there as materialized (select exists (select from kept) as yes),
           written as (
             insert into ${tables().states} as s (${column}task, state, wanted, handler_version, term)
             select ${value}$1::text, $2::text::jsonb, $3::bigint, $4::bigint, $5::bigint from whole, there
             where whole.yes or there.yes
             on conflict (${key}) do update set state = s.state || excluded.state,
               wanted = greatest(s.wanted, excluded.wanted),
               handler_version = greatest(s.handler_version, excluded.handler_version), term = excluded.term
             where s.term <= excluded.term
             returning 1
           )
           -- Of a task that was forgotten meanwhile, a part alone would be no state.
           select '1' as json from whole, there
           where exists (select from written) or not (whole.yes or there.yes)`,
          [task, JSON.stringify(fields), wanted ?? 0, handlerVersion ?? 0, term],
        );
        return written.length === 1;
      }),
    lead: (self, from) =>
      run('lead', async () => {
        const term = (from ?? 0) + 1;
        const values = [self.life, self.instanceId, term, from ?? null];
        const text =
          from === undefined
            ? `insert into ${tables().leaders} (${column}life, instance_id, term)
               select ${value}$1::text, $2::text, $3::bigint where $4::bigint is null
               on conflict do nothing returning '1' as json`
            : `update ${tables().leaders} set life = $1::text, instance_id = $2::text, term = $3::bigint
               where ${tables().leader} and term = $4::bigint returning '1' as json`;
        return (await query(text, values)).length === 1 ? { life: self.life, term } : undefined;
      }),
    resign: async ({ life, term }) => {
      const text = `update ${tables().leaders} set life = null
        where ${tables().leader} and life = $1::text and term = $2::bigint`;
      await run('resign', () => query(text, [life, term]));
    },
    load: ({ life, term }) =>
      run('read the planner', async () => {
        const text = `select '1' as json where ${holdsOffice()}
          and exists (select from ${names().planner} where partitions = $3::integer)`;
        return (await query(text, [life, term, of])).length === 1 ? { tokens: { '': BEGINNING } } : undefined;
      }),
    saveTokens: ({ life, term }, tokens) =>
      run('delete planned changes', async () => {
        const positions = Object.values(tokens).filter((token) => token instanceof Position);
        const seqs = positions.flatMap((position) => position.unsaved);
        const text = `with leads as materialized (select ${holdsOffice()} as yes), gone as (
            delete from ${names().changes} where (select yes from leads)
              and seq = any(array(select json_array_elements_text($3::text::json)::bigint))
          ) select to_json(yes)::text as json from leads`;
        const [leads = false] = await query<boolean>(text, [life, term, JSON.stringify(seqs)]);
        if (leads) for (const position of positions) position.deleted();
        return leads;
      }),
    checkpoint: ({ collection }) =>
      run('read a checkpoint', async () => {
        const [checkpoint] = await query<Checkpoint | null>(
          `select checkpoint::text as json from ${names().checkpoints} where source = $1::text and checkpoint is not null`,
          [`${tables().prefix}${collection}`],
        );
        return checkpoint ?? undefined;
      }),
    saveCheckpoint: (term, { collection }, checkpoint) => keep(term, collection, checkpoint),
    // Kept among the checkpoints, as `aside:<task>`. The others are named `schema.table`, so only a schema whose name
    // begins with `aside:` could collide.
    blocked: () =>
      run('read what was set aside', async () => {
        const found = await query<{ task: string; keys: readonly string[] }>(
          `select checkpoint::text as json from ${names().checkpoints}
           where starts_with(source, $1::text) and checkpoint is not null`,
          [`${tables().prefix}aside:`],
        );
        return found.map(({ task, keys }) => ({
          task,
          documents: keys.map((key) => ({ key, id: key })),
        }));
      }),
    saveBlocked: (term, { task, documents }) => {
      const keys = documents.map(({ key }) => key);
      return keep(term, `aside:${task}`, keys.length === 0 ? undefined : { task, keys });
    },
    request: (tasks, reason) =>
      run('ask for reconciliation', async () => {
        const known = await query<string>(
          `with named as materialized (
             select task from ${names().definitions} where $1::text is null
               or task = any(array(select json_array_elements_text($1::text::json)))
             union
             select task from ${names().states} where $1::text is null
               or task = any(array(select json_array_elements_text($1::text::json)))
           ), asked as (
             update ${names().states} set wanted = wanted + 1, state = state || jsonb_build_object('reason', $2::text)
             where task in (select task from named)
           ), asked_elsewhere as (
             update ${names().partitionStates}
             set wanted = wanted + 1, state = state || jsonb_build_object('reason', $2::text)
             where task in (select task from named)
           ) select to_json(task)::text as json from named`,
          [tasks === undefined ? null : JSON.stringify(tasks), reason],
        );
        if (of > 1) await notifyPeers(true);
        return known;
      }),
    notifyPeers,
  };
}
