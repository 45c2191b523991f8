/**
 * The functions of limits per key. docs/adr/0029 explains them. A claim by keys is one call of `claim_by_keys`: its
 * statements see what was committed before each of them began, so they see all that happened before the lock of the
 * name was theirs, and no client can be paused between them.
 */
import { NEVER } from '../../../core/records/job.js';
import { literal } from '../../reactive/names.js';
import type { Names } from '../names.js';
import { SAFE } from './0012-triggers.js';
import { KEY_OF_NAME, type KeyedTable } from './keyed-table.js';

/** How long one claim takes in what happened since the last one, and how much of it with each statement. */
const GATHERS_MS = 250;
const GATHERED = 5_000;

/**
 * A plan that was made for an empty table is kept for long; it must be good for a full one, too. And one that was made
 * for a full one must not read all of it: what joins here is few.
 */
const BY_INDEX = `${SAFE} set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
  set enable_hashjoin = off set enable_mergejoin = off
  set plan_cache_mode = force_generic_plan`;

/**
 * `grantStarts` of src/time/rate.ts for claims that happen at once; a test compares the two. `starts` is
 * {"next": ms, "starts": [[end, count], …]}.
 */
export const startsFunction = ({ table }: Names): string => {
  const body = `
  declare
    slice double precision := greatest(1, ceil(per / 64));
    spacing double precision := per / most;
    tolerance double precision := (burst - 1) * spacing + least(per * 0.05, greatest(50, spacing * 0.25));
    next_due double precision := greatest(coalesce((state ->> 'next')::double precision, 0), now);
    ends double precision[]; counts integer[]; used integer; spaced double precision; last_end double precision;
    beyond integer;
  begin
    select coalesce(array_agg((s ->> 0)::double precision order by (s ->> 0)::double precision), '{}'),
        coalesce(array_agg((s ->> 1)::integer order by (s ->> 0)::double precision), '{}'),
        coalesce(sum((s ->> 1)::integer), 0)
      into ends, counts, used
      from jsonb_array_elements(state -> 'starts') s where (s ->> 0)::double precision > now - per;
    spaced := case when next_due - tolerance > now then 0
      else floor((now + tolerance - next_due) / spacing) + 1 end;
    granted := greatest(0, least(wanted, most - used, spaced));
    last_end := ceil(now / slice) * slice;
    if granted > 0 then
      next_due := next_due + granted * spacing;
      if ends[cardinality(ends)] = last_end then
        counts[cardinality(counts)] := counts[cardinality(counts)] + granted;
      else
        ends := ends || last_end; counts := counts || granted;
      end if;
    else
      next_due := coalesce((state ->> 'next')::double precision, 0);
    end if;
    used := used + granted;
    open_at := now;
    beyond := used + 1 - most;
    if beyond > 0 then
      open_at := now + per;
      for i in 1 .. cardinality(ends) loop
        beyond := beyond - counts[i];
        if beyond <= 0 then open_at := ends[i] + per; exit; end if;
      end loop;
    end if;
    open_at := greatest(open_at, ceil(next_due - tolerance));
    forgotten_at := coalesce(ends[cardinality(ends)] + per, now);
    next_state := jsonb_build_object('next', next_due, 'starts', (
      select coalesce(jsonb_agg(jsonb_build_array(e, c) order by e), '[]') from unnest(ends, counts) as u(e, c)));
  end`;
  return `create function ${table('key_starts')}(state jsonb, most integer, per double precision, burst integer,
      wanted integer, now double precision, out granted integer, out next_state jsonb, out open_at double precision,
      out forgotten_at double precision)
    language plpgsql immutable ${SAFE} as ${literal(body)}`;
};

/** `givenBack` of src/time/rate.ts, for starts that were counted at those times; a test compares the two. */
export const unstartedFunction = ({ table }: Names): string => {
  const body = `
  with back as (
    select ceil(floor(extract(epoch from u.at) * 1000)::double precision / s.slice) * s.slice as last_end, count(*)::integer as count
    from unnest(times) as u(at), (select greatest(1, ceil(per / 64)) as slice) s group by 1
  ), counted as (
    select c.last_end, c.count, least(c.count, coalesce(b.count, 0)) as back from (
      select (s ->> 0)::double precision as last_end, (s ->> 1)::integer as count from jsonb_array_elements(state -> 'starts') s
    ) c left join back b on b.last_end = c.last_end
  )
  select jsonb_build_object('next', (state ->> 'next')::double precision - coalesce(sum(back), 0) * per / most,
    'starts', coalesce(jsonb_agg(jsonb_build_array(last_end, count - back) order by last_end) filter (where count > back), '[]'))
  from counted`;
  return `create function ${table('key_unstarted')}(state jsonb, most integer, per double precision, times timestamptz[]) returns jsonb
    language sql immutable ${SAFE} as ${literal(body)}`;
};

/** Work that waits under a key. */
const ofKey = ({ ofName, inTime }: KeyedTable): string =>
  `status = 'pending' and limit_key is not null and (${ofName}) = job_key${inTime}`;

/** A successor that waits for its predecessor holds nothing. */
export const HOLDS: string = `limit_order is not null and next_run_at < '${NEVER.toISOString()}'`;

/**
 * Locks up to `most` due jobs of a key beside those that were `taken`, the first of them in its order; `more` if further
 * ones are due. A lock of one's own hides nothing.
 */
const headsFunction = (work: KeyedTable): string => {
  const { rows, due, id, level } = work;
  const byTurn = `
    select coalesce(array_agg(h.place), '{}') into places from (
      select l.place from generate_series(hi, lo, -1) as level cross join lateral (
        select ctid as place from ${rows}
        where ${ofKey(work)}${level} and ${due} <= t and ctid <> all(taken)
        order by ${due}, ${id} limit most + 1 for update skip locked
      ) l limit most + 1
    ) h;
    more := cardinality(places) > most;
    places := places[1 : most];`;
  const inOrder = `
    more := false;
    select coalesce(array_agg(h.place), '{}') into places from (
      select ctid as place from ${rows}
      where ${ofKey(work)} and limit_order is null and ${due} <= t and ctid <> all(taken)
      order by limit_order, ${due}, ${id} limit 1 for update skip locked
    ) h;
    if cardinality(places) > 0 then return; end if;
    select ctid into found_at from ${rows}
      where ${ofKey(work)} and ${HOLDS} and (hold or ${due} <= t) and ctid <> all(taken)
      order by limit_order, ${due}, ${id} limit 1;
    select coalesce(array_agg(h.place), '{}') into places from (
      select ctid as place from ${rows}
      where ctid = found_at and status = 'pending' and ${due} <= t for update skip locked
    ) h;`;
  const body = work.hasOrder
    ? `
  declare
    found_at tid;
  begin
    if not ordered then${byTurn}
      return;
    end if;${inOrder}
  end`
    : `
  begin${byTurn}
  end`;
  return `create function ${work.call('key_heads')}(job_key text, hi integer, lo integer, most integer, ordered boolean, hold boolean,
      t timestamptz, taken tid[], out places tid[], out more boolean)
    language plpgsql as ${literal(body)}`;
};

/** When the next job of a key is due, beside those that were just taken; null if it has none. `held_until`: when the
 * first of those is due that can be next, if a head holds its key. */
const nextFunction = (work: KeyedTable): string => {
  const { rows, due, id, level } = work;
  const holding = work.hasOrder
    ? `
    held_until := case when hold then least(
      (select ${due} from ${rows} where ${ofKey(work)} and ${HOLDS} and ctid <> all(taken)
       order by limit_order, ${due}, ${id} limit 1),
      (select ${due} from ${rows} where ${ofKey(work)} and limit_order is null and ctid <> all(taken)
       order by limit_order, ${due}, ${id} limit 1)) end;`
    : '';
  const body = `
  begin
    due_at := (select min(l.at) from generate_series(hi, lo, -1) as level cross join lateral (
      select ${due} as at from ${rows}
      where ${ofKey(work)}${level} and ctid <> all(taken) order by ${due}, ${id} limit 1
    ) l);${holding}
  end`;
  return `create function ${work.call('key_next')}(job_key text, hi integer, lo integer, hold boolean, taken tid[], out due_at timestamptz,
      out held_until timestamptz)
    language plpgsql as ${literal(body)}`;
};

/**
 * How much of a key runs, counted up to `most`, and was `taken` by this claim. The empty key has the jobs that were claimed
 * without one, too.
 */
const runningFunction = ({ rows, name, ofName, runs, call }: KeyedTable): string => {
  const body = `
  begin
    running := (select count(*) from (select from ${rows}
      where ${runs('')} and limit_key is not null and (${ofName}) = job_key limit most) r);
    if k = '' and running < most then
      running := running + (select count(*) from (select from ${rows}
        where ${runs('')} and ${name} = of_name and limit_key is null limit most) r);
    end if;
    if cardinality(taken) > 0 then
      running := running + (select count(*) from ${rows}
        where ctid = any(taken) and limit_key is not null and (${ofName}) = job_key);
    end if;
  end`;
  return `create function ${call('key_running')}(of_name text, k text, job_key text, most integer, taken tid[], out running integer)
    language plpgsql as ${literal(body)}`;
};

/**
 * Takes in what happened since the last claim: gives jobs without a key the empty one, and moves the keys of which
 * something began to wait or ended. Says if there is more of either.
 */
const gatherFunction = (
  { table }: Names,
  { rows, name, due, id, keys, wakes, call, called }: KeyedTable,
): string => {
  const body = `
  declare
    bare tid[]; noted integer;
  begin
    select array_agg(p.place) filter (where p.limit_key is null) into bare from (
      select ctid as place, limit_key from ${rows}
      where ${name} = of_name and status = 'pending' and ${due} > '-infinity' and ${due} <= t
      order by ${due} desc, ${id} desc limit 50) p;
    if bare is not null then
      update ${rows} set limit_key = '' where ctid = any(array(
        select ctid from ${rows} where ctid = any(bare) and status = 'pending' and limit_key is null
        for update skip locked));
    end if;
    with gone as (
      delete from ${wakes} where ctid = any(array(
        select ctid from ${wakes} where name = of_name limit ${String(GATHERED)} for update skip locked))
      returning key, at, adds, frees, unstarted
    ), told as materialized (
      select key, min(at) as at, bool_or(adds) as adds, bool_or(frees) as frees,
        array_agg(unstarted) filter (where unstarted is not null and ${called('gather_keys')}.rule ? 'limit') as unstarted
      from gone group by key
    ), moved as (
      -- Of a start that did not happen, the look at the key finds out when the rate lets the next one through.
      update ${keys} j set held = j.held and w.at > t,
        at = case when w.unstarted is null then greatest(w.at, j.served_at, j.free_at)
          else least(j.at, greatest(w.at, j.served_at)) end,
        free_at = case when w.unstarted is null then j.free_at end,
        starts = case when w.unstarted is null then j.starts
          else ${table('key_unstarted')}(j.starts, (${called('gather_keys')}.rule ->> 'limit')::integer,
            (${called('gather_keys')}.rule ->> 'per')::double precision, w.unstarted) end
      from told w where j.name = of_name and j.key = w.key and (w.unstarted is not null
        or ((w.frees or j.at < 'infinity') and j.at > greatest(w.at, j.served_at, j.free_at)))
    ), added as (
      insert into ${keys} (name, key, rule, at)
      select of_name, key, by_rule, case when at = '-infinity' then t else at end from told where adds
      on conflict do nothing
    )
    select count(*) into noted from gone;
    more_wakes := noted = ${String(GATHERED)};
    more_bare := coalesce(cardinality(bare), 0) = 50;
  end`;
  return `create function ${call('gather_keys')}(of_name text, by_rule text, rule jsonb, t timestamptz, out more_wakes boolean, out more_bare boolean)
    language plpgsql as ${literal(body)}`;
};

/**
 * Looks at one key: takes up to `wanted` of it beside what the claim has `taken`, and writes when to look at it again.
 */
const lookFunction = ({ table }: Names, { keys, call, called }: KeyedTable): string => {
  const body = `
  declare
    most integer := (rule ->> 'most')::integer;
    ordered boolean := coalesce((rule ->> 'ordered')::boolean, false);
    hold boolean := coalesce((rule ->> 'hold')::boolean, false);
    ms double precision := floor(extract(epoch from t) * 1000);
    job_key text := ${KEY_OF_NAME('of_name', 'k')};
    room integer := wanted; more boolean := false; running integer := 0; forgotten_at double precision;
    open_at timestamptz; again timestamptz; due_at timestamptz; held_until timestamptz; r record;
  begin
    places := '{}';
    if most is not null then
      running := ${call('key_running')}(of_name, k, job_key, most, taken);
      room := least(room, most - running);
    end if;
    if room > 0 and rule ? 'limit' then
      select * into r from ${table('key_starts')}(starts, (rule ->> 'limit')::integer,
        (rule ->> 'per')::double precision, (rule ->> 'burst')::integer, room, ms);
      room := r.granted;
      open_at := to_timestamp(r.open_at / 1000);
    end if;
    if room > 0 then
      select h.places, h.more into places, more from ${call('key_heads')}(job_key, hi, lo, room, ordered, hold, t, taken) h;
    end if;
    if rule ? 'limit' then
      select * into r from ${table('key_starts')}(starts, (rule ->> 'limit')::integer,
        (rule ->> 'per')::double precision, (rule ->> 'burst')::integer, cardinality(places), ms);
      starts := r.next_state;
      forgotten_at := r.forgotten_at;
      open_at := to_timestamp(r.open_at / 1000);
    end if;
    if not more then
      select n.due_at, n.held_until into due_at, held_until from ${call('key_next')}(job_key, hi, lo, hold, taken || places) n;
      if due_at is null and coalesce(forgotten_at, 0) <= ms then
        delete from ${keys} where name = of_name and key = k;
        return;
      end if;
      more := due_at <= t;
    end if;
    again := case
      when running + cardinality(places) >= most then 'infinity'
      when due_at is null and not coalesce(more, false) then to_timestamp(forgotten_at / 1000)
      when open_at > t then open_at
      when held_until > t then held_until
      when not more then due_at
      when cardinality(places) > 0 then clock_timestamp()
      else t + interval '1 second'
    end;
    update ${keys} j set rule = by_rule, at = again, held = coalesce(more, false) and again > clock_timestamp(),
      served_at = case when cardinality(places) > 0 then clock_timestamp() else j.served_at end,
      free_at = open_at, starts = ${called('look_at_key')}.starts
    where j.name = of_name and j.key = k;
  end`;
  return `create function ${call('look_at_key')}(of_name text, k text, by_rule text, rule jsonb, hi integer, lo integer, wanted integer, t timestamptz,
      taken tid[], inout starts jsonb, out places tid[])
    language plpgsql as ${literal(body)}`;
};

/**
 * Takes up to `wanted` jobs of a name. Each key gives as many as its share of a turn; what is left then goes to further
 * turns. After a long time without claims, it takes several to learn of all keys that wait: until then each known key
 * gives one, so that none has a long start. `t` is the one time of the claim, by which work is due, starts are counted,
 * and jobs are written. If the rule has `turns`, each key gives up to `each` jobs in a turn, and the claim ends after
 * `most` turns that gave something: the other keys stay for other instances.
 */
const takeFunction = ({ rows, name, due, id, keys, level, call, called }: KeyedTable): string => {
  const end = (ascending: boolean): string => {
    const way = ascending ? ['', ' desc'] : [' desc', ''];
    return `(select priority from ${rows} where ${name} = of_name and status = 'pending'
      order by priority${way[0] ?? ''}, ${due}${way[1] ?? ''}, ${id}${way[1] ?? ''} limit 1)`;
  };
  const body = `
  declare
    by_now timestamptz; hi integer; lo integer; left_over integer; portion integer; k record; looked record; ready integer;
    gathered record; gathers_until timestamptz := clock_timestamp() + interval '${String(GATHERS_MS)} milliseconds';
    turn_gives integer := (rule -> 'turns' ->> 'each')::integer;
    turns_left integer := coalesce((rule -> 'turns' ->> 'most')::integer, wanted);
  begin
    places := '{}';
    loop
      select * into gathered from ${call('gather_keys')}(of_name, by_rule, ${called('take_by_keys')}.rule, t);
      exit when not gathered.more_wakes or clock_timestamp() > gathers_until;
    end loop;
    more := gathered.more_wakes or gathered.more_bare;
    -- Whatever has another priority has not been told of yet.
    hi := ${level === '' ? '0' : end(false)};
    lo := ${level === '' ? '0' : end(true)};
    for turn in 1 .. 3 loop
      by_now := clock_timestamp();
      left_over := wanted - cardinality(places);
      exit when left_over <= 0 or turns_left <= 0;
      ready := (select count(*) from (select from ${keys} where name = of_name and ${called('keys')}.rule = by_rule and at <= by_now
        order by at limit left_over) r);
      portion := coalesce(turn_gives,
        case when gathered.more_wakes then 1 else ceil(left_over::double precision / greatest(1, ready)) end);
      ready := 0;
      for k in
        select c.key, c.starts from (
          (select key, starts, at from ${keys} where name = of_name and ${called('keys')}.rule = by_rule and at <= by_now order by at limit left_over + 50)
          union all (select key, starts, at from ${keys} where name = of_name and ${called('keys')}.rule < by_rule limit 50)
          union all (select key, starts, at from ${keys} where name = of_name and ${called('keys')}.rule > by_rule limit 50)
        ) c order by c.at
      loop
        exit when cardinality(places) >= wanted or turns_left <= 0;
        ready := ready + 1;
        select * into looked from ${call('look_at_key')}(of_name, k.key, by_rule, ${called('take_by_keys')}.rule, hi, lo,
          least(portion, wanted - cardinality(places)), t, places, k.starts);
        places := places || looked.places;
        if cardinality(looked.places) > 0 then turns_left := turns_left - 1; end if;
      end loop;
      exit when ready = 0 or gathered.more_wakes;
    end loop;
    -- Called in the condition, a volatile function would read every key.
    by_now := clock_timestamp();
    more := more or exists (select from ${keys} where name = of_name and ${called('keys')}.rule = by_rule and at <= by_now)
      or exists (select from ${keys} where name = of_name and ${called('keys')}.rule < by_rule)
      or exists (select from ${keys} where name = of_name and ${called('keys')}.rule > by_rule);
  end`;
  return `create function ${call('take_by_keys')}(of_name text, by_rule text, rule jsonb, wanted integer, t timestamptz, out places tid[],
      out more boolean)
    language plpgsql as ${literal(body)}`;
};

/**
 * Claims by keys. `wanted` has the names with their rules, `statement` writes the jobs at the places $1, at the time
 * $2. Returns a summary, then what the statement returns. Claims of one name go one after the other, and those of
 * several names lock them in one order.
 */
const claimFunction = ({ schema }: Names, work: KeyedTable): string => {
  const { rows, name, due, id, keys, inTime, isPaused, lock, call } = work;
  const body = `
  declare
    n record; taken record; t timestamptz; places tid[] := '{}'; waiting integer; left_over integer := total;
    answers jsonb := '[]'; held_until timestamptz; is_held boolean; claimed text[] := '{}';
  begin
    if current_setting('transaction_isolation') <> 'read committed' then
      return next 'null';
      return;
    end if;
    for n in select w.name from jsonb_to_recordset(wanted) as w(name text) order by w.name collate "C" loop
      perform pg_advisory_xact_lock(hashtextextended(${literal(`tidemill:${schema}:${lock}:`)} || n.name, 0));
    end loop;
    t := date_trunc('milliseconds', clock_timestamp());
    waiting := jsonb_array_length(wanted);
    for n in select * from jsonb_to_recordset(wanted) as w(name text, most integer, until timestamptz, by_rule text, rule jsonb) loop
      if (n.until is null or clock_timestamp() <= n.until)
          and not ${isPaused('n.name')} then
        select * into taken from ${call('take_by_keys')}(n.name, n.by_rule, n.rule,
          least(n.most, ceil(left_over::double precision / waiting)::integer), t);
        places := places || taken.places;
        left_over := left_over - cardinality(taken.places);
        answers := answers || jsonb_build_array(jsonb_build_object('name', n.name, 'more', taken.more,
          'taken', cardinality(taken.places)));
      end if;
      waiting := waiting - 1;
    end loop;
    if cardinality(places) > 0 then
      for n in execute statement using places, t loop
        claimed := claimed || n.json;
      end loop;
    end if;
    for n in select a ->> 'name' as name, place - 1 as place, (a ->> 'more')::boolean as more, (a ->> 'taken')::integer as taken
        from jsonb_array_elements(answers) with ordinality as l(a, place) loop
      is_held := exists (select from ${rows} where ${name} = n.name and status = 'pending'
        and ${due} > '-infinity' and ${due} <= t${inTime} order by ${due}, ${id} limit 1);
      if is_held then
        held_until := (select k.at from ${keys} k where k.name = n.name and k.held and k.at > t order by k.at limit 1);
        if held_until is not null or not n.more then
          answers := jsonb_set(answers, array[n.place::text, 'held'],
            case when held_until is null or held_until = 'infinity' then 'null'::jsonb
              else to_jsonb(ceil(extract(epoch from held_until) * 1000)) end);
        end if;
      end if;
    end loop;
    return next json_build_object('at', floor(extract(epoch from t) * 1000), 'names', answers)::text;
    return query select unnest(claimed);
  end`;
  return `create function ${call('claim_by_keys')}(wanted jsonb, total integer, statement text) returns setof text
    language plpgsql ${BY_INDEX} as ${literal(body)}`;
};

/** The functions of one kind of work. */
export const keyFunctions = (names: Names, work: KeyedTable): readonly string[] => [
  headsFunction(work),
  nextFunction(work),
  runningFunction(work),
  gatherFunction(names, work),
  lookFunction(names, work),
  takeFunction(work),
  claimFunction(names, work),
];
