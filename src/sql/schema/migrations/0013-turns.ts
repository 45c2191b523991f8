import { literal } from '../../reactive/names.js';
import type { Names } from '../names.js';
import type { Migration } from './migration.js';

/** As in 0012-keys.ts. */
const GATHERS_MS = 250;

/**
 * As in 0012-keys.ts. If the rule has `turns`, each key gives up to `each` jobs in a turn, and the claim ends after `most`
 * turns that gave something: the other keys stay for other instances.
 */
const takeFunction = ({ jobs, table }: Names): string => {
  const keys = table('job_keys');
  const body = `
  declare
    by_now timestamptz; hi integer; lo integer; left_over integer; portion integer; k record; looked record; ready integer;
    gathered record; gathers_until timestamptz := clock_timestamp() + interval '${String(GATHERS_MS)} milliseconds';
    turn_gives integer := (rule -> 'turns' ->> 'each')::integer;
    turns_left integer := coalesce((rule -> 'turns' ->> 'most')::integer, wanted);
  begin
    places := '{}';
    loop
      select * into gathered from ${table('gather_keys')}(of_name, by_rule, t);
      exit when not gathered.more_wakes or clock_timestamp() > gathers_until;
    end loop;
    more := gathered.more_wakes or gathered.more_bare;
    -- Whatever has another priority has not been told of yet.
    hi := (select priority from ${jobs} where name = of_name and status = 'pending'
      order by priority desc, next_run_at, id limit 1);
    lo := (select priority from ${jobs} where name = of_name and status = 'pending'
      order by priority, next_run_at desc, id desc limit 1);
    for turn in 1 .. 3 loop
      by_now := clock_timestamp();
      left_over := wanted - cardinality(places);
      exit when left_over <= 0 or turns_left <= 0;
      ready := (select count(*) from (select from ${keys} where name = of_name and job_keys.rule = by_rule and at <= by_now
        order by at limit left_over) r);
      portion := coalesce(turn_gives,
        case when gathered.more_wakes then 1 else ceil(left_over::double precision / greatest(1, ready)) end);
      ready := 0;
      for k in
        select c.key, c.starts from (
          (select key, starts, at from ${keys} where name = of_name and job_keys.rule = by_rule and at <= by_now order by at limit left_over + 50)
          union all (select key, starts, at from ${keys} where name = of_name and job_keys.rule < by_rule limit 50)
          union all (select key, starts, at from ${keys} where name = of_name and job_keys.rule > by_rule limit 50)
        ) c order by c.at
      loop
        exit when cardinality(places) >= wanted or turns_left <= 0;
        ready := ready + 1;
        select * into looked from ${table('look_at_key')}(of_name, k.key, by_rule, take_by_keys.rule, hi, lo,
          least(portion, wanted - cardinality(places)), t, places, k.starts);
        places := places || looked.places;
        if cardinality(looked.places) > 0 then turns_left := turns_left - 1; end if;
      end loop;
      exit when ready = 0 or gathered.more_wakes;
    end loop;
    -- Called in the condition, a volatile function would read every key.
    by_now := clock_timestamp();
    more := more or exists (select from ${keys} where name = of_name and job_keys.rule = by_rule and at <= by_now)
      or exists (select from ${keys} where name = of_name and job_keys.rule < by_rule)
      or exists (select from ${keys} where name = of_name and job_keys.rule > by_rule);
  end`;
  return `create or replace function ${table('take_by_keys')}(of_name text, by_rule text, rule jsonb, wanted integer, t timestamptz,
      out places tid[], out more boolean)
    language plpgsql as ${literal(body)}`;
};

export const turns: Migration = {
  version: 13,
  name: 'turns',
  compatibleSince: 6,
  up: (names) => [takeFunction(names)],
};
