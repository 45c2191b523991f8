import { literal } from '../../reactive/names.js';
import type { Names } from '../names.js';
import { enqueueFunctions } from './0011-enqueue.js';
import type { Migration } from './migration.js';

const LIVE = `status in ('pending', 'processing')`;

/** Gives a successor that waits the key of its predecessor, unless a live job has it. True: it is released. */
const releaseFunction = ({ jobs, table }: Names): string => `
  create function ${table('release_successor')}(of_name text, of_key text) returns boolean language plpgsql as ${literal(`
  begin
    update ${jobs} s set unique_key = s.successor_key, next_run_at = s.successor_run_at, successor_key = null,
      successor_run_at = null, updated_at = clock_timestamp()
    where s.name = of_name and s.successor_key = of_key and s.status = 'pending' and not exists (
      select from ${jobs} l where l.name = of_name and l.unique_key = of_key and l.${LIVE});
    return found;
  exception when unique_violation then
    return false;
  end`)}`;

/** Later steps replace the function by one that also stores columns of theirs. */
interface Version {
  readonly create: 'create' | 'create or replace';
  readonly columns: readonly string[];
  /** What a `reschedule` and a `replace` also set; the job is `j`, and its due time `new_job.next_run_at` and `d.due`. */
  readonly rescheduled: string;
  readonly replaced: string;
}

const FIRST: Version = { create: 'create', columns: [], rescheduled: '', replaced: '' };

/**
 * Stores a job, or changes the one that has its unique key, as \`JobStore.insert\` says. It locks the live job of the key
 * first: whoever stores, replaces or releases a successor holds that lock, so none of them misses the other.
 */
export const putFunction = (
  { jobs, table }: Names,
  { create, columns, rescheduled, replaced }: Version = FIRST,
): string => `
  ${create} function ${table('put_job')}(given jsonb, kind text, most_ms double precision, lock_ms integer,
    out outcome text, out job ${jobs}) language plpgsql as ${literal(`
  declare
    new_job ${jobs};
    live ${jobs};
    span interval := most_ms * interval '1 millisecond';
  begin
    if lock_ms is not null then perform set_config('lock_timeout', lock_ms::text, true); end if;
    new_job := jsonb_populate_record(null::${jobs}, given);
    for tries in 1..50 loop
      select * into job from ${jobs} j where j.id = new_job.id;
      if found then outcome := 'existing'; return; end if;
      live := null;
      select * into live from ${jobs} j
        where j.name = new_job.name and j.unique_key = new_job.unique_key and j.${LIVE} for update;
      if live.id is not null and kind = 'keep' then
        job := live; outcome := 'existing'; return;
      end if;
      if live.id is not null and kind = 'reschedule' then
        job := live; outcome := 'existing';
        if live.status = 'pending' then
          update ${jobs} j set next_run_at = new_job.next_run_at, updated_at = clock_timestamp(),
            start_by = j.start_by + (new_job.next_run_at - j.next_run_at)${rescheduled}
          where j.id = live.id returning j.* into job;
          outcome := 'rescheduled';
        end if;
        return;
      end if;
      if kind in ('replace', 'debounce') then
        update ${jobs} j set data = new_job.data, priority = new_job.priority, retry_policy = new_job.retry_policy,
          timeout_ms = new_job.timeout_ms, trace = new_job.trace, updated_at = clock_timestamp(),${replaced}
          debounced_at = d.since, next_run_at = case when j.successor_key is null then d.due else j.next_run_at end,
          successor_run_at = case when j.successor_key is not null then d.due end,
          start_by = d.due + (new_job.start_by - new_job.next_run_at),
          fail_count = 0, fail_reason = null, fail_kind = null, first_failed_at = null, result = null, progress = null
        from (
          select w.id, case when kind = 'debounce' then coalesce(w.debounced_at, new_job.created_at) end as since,
            least(new_job.next_run_at, case when kind = 'debounce'
              then coalesce(w.debounced_at, new_job.created_at) + span end) as due
          from ${jobs} w
          where w.name = new_job.name and w.status = 'pending'
            and (w.successor_key = new_job.unique_key or w.unique_key = new_job.unique_key)
          order by w.successor_key nulls last limit 1
        ) d
        where j.id = d.id and j.status = 'pending' returning j.* into job;
        if found then
          outcome := 'replaced';
          if live.id is null and ${table('release_successor')}(new_job.name, new_job.unique_key) then
            select * into job from ${jobs} j where j.id = job.id;
          end if;
          return;
        end if;
        if live.status = 'processing' then
          new_job.successor_key := new_job.unique_key;
          new_job.successor_run_at := new_job.next_run_at;
          new_job.next_run_at := '9999-12-31T23:59:59.999Z';
          new_job.unique_key := null;
        end if;
      end if;
      insert into ${jobs} (id, name, data, priority, next_run_at, created_at, updated_at, unique_key, retry_policy,
        timeout_ms, trace, timed, start_by, debounced_at, successor_key, successor_run_at${columns.map((column) => `, ${column}`).join('')})
      values (new_job.id, new_job.name, new_job.data, new_job.priority, new_job.next_run_at, new_job.created_at,
        new_job.created_at, new_job.unique_key, new_job.retry_policy, new_job.timeout_ms, new_job.trace, new_job.timed,
        new_job.start_by, new_job.debounced_at, new_job.successor_key, new_job.successor_run_at${columns.map((column) => `, new_job.${column}`).join('')})
      on conflict do nothing returning * into job;
      if found then
        outcome := 'created';
        if new_job.successor_key is not null then
          update ${jobs} j set followed = true, updated_at = clock_timestamp() where j.id = live.id;
        end if;
        return;
      end if;
      new_job := jsonb_populate_record(null::${jobs}, given);
    end loop;
    raise exception 'enqueue: a unique key was taken and freed again many times in a row; try again.'
      using errcode = 'serialization_failure';
  end`)}`;

/** Successors, time limits for the start, and \`enqueue\` in plain SQL (ADR 26). */
export const existing: Migration = {
  version: 11,
  name: 'existing',
  compatibleSince: 6,
  up: (names) => [
    // followed: a successor may wait for this job. successor_key, successor_run_at: of a successor that waits.
    // start_by: when a job that has not started expires. debounced_at: the first call of debounce.
    `alter table ${names.jobs}
       add column if not exists followed boolean,
       add column if not exists successor_key text collate "C",
       add column if not exists successor_run_at timestamptz(3),
       add column if not exists start_by timestamptz(3),
       add column if not exists debounced_at timestamptz(3)`,
    // insert and release: one successor waits for each name and unique key.
    `create unique index if not exists jobs_successor on ${names.jobs} (name, successor_key)
       where successor_key is not null and status = 'pending'`,
    // peek, expire: the pending jobs with a time limit, by that.
    `create index if not exists jobs_start_by on ${names.jobs} (start_by)
       where start_by is not null and status = 'pending'`,
    releaseFunction(names),
    putFunction(names),
    ...enqueueFunctions(names),
  ],
};
