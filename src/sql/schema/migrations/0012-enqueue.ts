import { ORDER_COUNT_DIGITS, ORDER_DUE_DIGITS } from '../../../core/records/limit-order.js';
import { literal } from '../../reactive/names.js';
import type { Names } from '../names.js';
import { check, enqueueFunction } from './0011-enqueue.js';
import { putFunction } from './0011-existing.js';

const digitsOf = (value: string, width: number): string =>
  `lpad((${value})::bigint::text, ${String(width)}, '0')`;
const msOf = (time: string): string => `greatest(0, floor(extract(epoch from ${time}) * 1000))`;

/** As `orderOf` of src/core/records/limit-order.ts makes it: by due time, then by the time of the call. */
const orderOf = (due: string, at: string, count: string): string =>
  [
    digitsOf(msOf(due), ORDER_DUE_DIGITS),
    digitsOf(msOf(at), ORDER_DUE_DIGITS),
    digitsOf(count, ORDER_COUNT_DIGITS),
  ].join(` || '-' || `);

const ORDER = orderOf('due', 'at', 'extract(microseconds from tick)::bigint % 1000');

/** A call without a key does not know that the job has a place. */
const RESCHEDULED = `, limit_order = case when j.limit_order is not null
              then coalesce(new_job.limit_order, ${orderOf('new_job.next_run_at', 'new_job.created_at', '0')}) end`;

/** A debounced job may be due earlier than the call says. */
const REPLACED = ` limit_key = new_job.limit_key,
          limit_order = case when d.due = new_job.next_run_at then new_job.limit_order
            else ${digitsOf(msOf('d.due'), ORDER_DUE_DIGITS)} || substr(new_job.limit_order, ${String(ORDER_DUE_DIGITS + 1)}) end,`;

/** The length of a text in JavaScript, which counts characters beyond the first 65,536 twice. */
const unitsOf = (text: string): string =>
  `length(${text}) + length(regexp_replace(${text}, '[^\\U00010000-\\U0010FFFF]', '', 'g'))`;

const KEY_CHECK = check(
  'key',
  `jsonb_typeof(options -> 'key') in ('number', 'null') or (jsonb_typeof(options -> 'key') = 'string'
      and length(options ->> 'key') <= 1024 and ${unitsOf(`options ->> 'key'`)} <= 1024)`,
  'a text of up to 1024 characters or a number',
);

/** As `keyText` of src/jobs/enqueue/limit-key.ts: numbers as JavaScript writes them, null as ''. */
const keyFunction = ({ table }: Names): string => `
  create or replace function ${table('key_text')}(given jsonb) returns text language plpgsql immutable
    set extra_float_digits = 1 as ${literal(`
  declare number double precision;
  begin
    if jsonb_typeof(given) <> 'number' then return coalesce(given #>> '{}', ''); end if;
    begin
      number := (given #>> '{}')::double precision;
    exception when numeric_value_out_of_range then
      raise exception 'enqueue: key must be a number that JavaScript can hold, got %.', given
        using errcode = 'invalid_parameter_value';
    end;
    if abs(number) >= 1e21 or (number <> 0 and abs(number) < 1e-6) then
      return replace(number::text, 'e-0', 'e-');
    end if;
    return trim_scale(number::text::numeric)::text;
  end`)}`;

/** What a worker reads as a duration; it is not all that PostgreSQL reads as an interval. */
const DURATION =
  '^\\s*(?:\\d+(?:\\.\\d+)?\\s*(?:ms|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)\\s*)+$';
const MOST_MS = 86_400_000 * 1_000_000;

/** As `retryRule` of src/time/retry.ts, except for the text of a cron expression and the name of its time zone. */
const policyFunction = ({ table }: Names): string => `
  create or replace function ${table('check_retry_policy')}(policy jsonb) returns void language plpgsql as ${literal(`
  declare
    kind text := policy ->> 'type'; unknown text; d record;
    shapes text[] := array['interval', 'min', 'max', 'factor', 'intervals', 'expression', 'timezone'];
    own text[];
  begin
    if policy = '{}' or policy ?| (shapes || array['type']) then
      own := case kind when 'fixed' then array['interval'] when 'linear' then array['interval']
        when 'exponential' then array['min', 'max', 'factor'] when 'series' then array['intervals']
        when 'cron' then array['expression', 'timezone'] end;
      if own is null then
        raise exception 'enqueue: retryPolicy must have a type: fixed, linear, exponential, series or cron; got %.', policy
          using errcode = 'invalid_parameter_value';
      end if;
    end if;
    select key into unknown from jsonb_object_keys(policy) as key
      where key <> all(array['type', 'maxAttempts', 'maxDuration', 'jitter'] || coalesce(own, '{}')) limit 1;
    if unknown is not null then
      raise exception 'enqueue: retryPolicy: unknown option %.', to_jsonb(unknown) using errcode = 'invalid_parameter_value';
    end if;
    for d in
      select 'interval' as option, policy -> 'interval' as given, 0 as least where kind in ('fixed', 'linear')
      union all select key, value, case key when 'maxDuration' then 1 else 0 end from jsonb_each(policy)
        where key in ('min', 'max', 'maxDuration')
      union all select 'intervals[' || place - 1 || ']', item, 0 from jsonb_array_elements(
        case when jsonb_typeof(policy -> 'intervals') = 'array' then policy -> 'intervals' else '[]' end)
        with ordinality as l(item, place)
    loop
      if (jsonb_typeof(d.given) = 'string' and (d.given #>> '{}') !~* '${DURATION}')
          or ${table('duration_ms')}('retryPolicy.' || d.option, d.given, d.least) > ${String(MOST_MS)} then
        raise exception 'enqueue: retryPolicy.% must be a duration such as ''90s'' or ''1h30m'' or a number of milliseconds, got %.',
          d.option, d.given using errcode = 'invalid_parameter_value';
      end if;
    end loop;
    for d in select * from (values
      ('maxAttempts', 'a positive whole number, or -1 for unlimited', case jsonb_typeof(policy -> 'maxAttempts')
        when 'number' then (policy ->> 'maxAttempts')::numeric % 1 = 0 and ((policy ->> 'maxAttempts')::numeric = -1
          or (policy ->> 'maxAttempts')::numeric between 1 and 9007199254740991) end),
      ('jitter', 'true, false or a number from 0 to 1', case jsonb_typeof(policy -> 'jitter')
        when 'boolean' then true when 'number' then (policy ->> 'jitter')::numeric between 0 and 1 end),
      ('factor', 'a number of at least 1', case jsonb_typeof(policy -> 'factor')
        when 'number' then (policy ->> 'factor')::numeric >= 1 end),
      ('max', 'no shorter than min', kind <> 'exponential'
        or ${table('duration_ms')}('retryPolicy.max', coalesce(policy -> 'max', '"1d"'), 0)
          >= ${table('duration_ms')}('retryPolicy.min', coalesce(policy -> 'min', '"2s"'), 0)),
      ('min', 'no longer than max', kind <> 'exponential'
        or ${table('duration_ms')}('retryPolicy.max', coalesce(policy -> 'max', '"1d"'), 0)
          >= ${table('duration_ms')}('retryPolicy.min', coalesce(policy -> 'min', '"2s"'), 0)),
      ('intervals', 'a list such as ["1m", "5m"]', jsonb_typeof(policy -> 'intervals') = 'array'
        and policy -> 'intervals' <> '[]'),
      ('expression', 'a text', jsonb_typeof(policy -> 'expression') = 'string' and btrim(policy ->> 'expression') <> ''),
      ('timezone', 'a text', jsonb_typeof(policy -> 'timezone') = 'string')
    ) as c(option, what, fits)
    loop
      if (policy ? d.option or (d.option = 'intervals' and kind = 'series') or (d.option = 'expression' and kind = 'cron'))
          and d.fits is not true then
        raise exception 'enqueue: retryPolicy.% must be %, got %.', d.option, d.what, policy -> d.option
          using errcode = 'invalid_parameter_value';
      end if;
    end loop;
  end`)}`;

const policyCheck = ({ table }: Names): string => `
    if options ? 'retryPolicy' then perform ${table('check_retry_policy')}(options -> 'retryPolicy'); end if;`;

/** The functions that store jobs, now with the limit key of the job and its place among those of its key. */
export const keyedFunctions = (names: Names): readonly string[] => [
  putFunction(names, {
    create: 'create or replace',
    columns: ['limit_key', 'limit_order'],
    rescheduled: RESCHEDULED,
    replaced: REPLACED,
  }),
  keyFunction(names),
  policyFunction(names),
  enqueueFunction(names, {
    create: 'create or replace',
    options: ['key'],
    checks: KEY_CHECK + policyCheck(names),
    fields: `
      'limit_key', case when options ? 'key' then ${names.table('key_text')}(options -> 'key') end, 'limit_order', case when options ? 'key' then ${ORDER} end,`,
  }),
];
