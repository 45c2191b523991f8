import { literal } from '../../reactive/names.js';
import type { Names } from '../names.js';

/** Digits to the base 32, as in the ids that the store makes. */
const digitsFunction = ({ table }: Names): string => `
  create function ${table('base32')}(number bigint, width integer) returns text language sql immutable as ${literal(`
    select string_agg(substr('0123456789abcdefghijklmnopqrstuv', ((number >> (5 * place)) & 31)::integer + 1, 1), ''
      order by place desc)
    from generate_series(0, width - 1) as place`)}`;

/** A duration in milliseconds: a number of them, or text such as '90s', '1h30m' or '10 minutes'. */
const durationFunction = ({ table }: Names): string => `
  create function ${table('duration_ms')}(option text, given jsonb, least_ms integer) returns double precision
  language plpgsql as ${literal(`
  declare ms double precision;
  begin
    begin
      ms := case jsonb_typeof(given)
        when 'number' then given::text::double precision
        when 'string' then extract(epoch from (given #>> '{}')::interval) * 1000
      end;
    exception when data_exception then
      ms := null;
    end;
    if ms is null or ms < least_ms then
      raise exception 'enqueue: % must be a duration such as ''10 minutes'' or a number of milliseconds, got %.',
        option, given using errcode = 'invalid_parameter_value';
    end if;
    return ms;
  end`)}`;

const KEYS = [
  'id',
  'runAt',
  'delay',
  'priority',
  'uniqueKey',
  'onExisting',
  'debounce',
  'expireIn',
  'retryPolicy',
  'timeout',
];

const raise = (text: string, ...values: readonly string[]): string =>
  `raise exception '${text}', ${values.join(', ')} using errcode = 'invalid_parameter_value';`;

/** Checks one option, and says what it must be. */
export const check = (option: string, fits: string, what: string): string => `
    if options ? '${option}' and (${fits}) is not true then
      ${raise(`enqueue: ${option} must be ${what}, got %.`, `options -> '${option}'`)}
    end if;`;

const isText = (option: string): string =>
  `jsonb_typeof(options -> '${option}') = 'string' and btrim(options ->> '${option}') <> ''`;

const CHECKS = [
  check(
    'id',
    `${isText('id')} and not starts_with(options ->> 'id', 'schedule:')`,
    'a text that names no schedule',
  ),
  check('uniqueKey', isText('uniqueKey'), 'a text that is not empty'),
  check(
    'priority',
    `case when jsonb_typeof(options -> 'priority') = 'number'
      then (options ->> 'priority')::numeric between -10 and 10 and (options ->> 'priority')::numeric % 1 = 0 end`,
    'a whole number from -10 to 10',
  ),
  check(
    'onExisting',
    `options -> 'onExisting' in ('"keep"', '"replace"', '"reschedule"')`,
    'keep, replace or reschedule',
  ),
  check(
    'retryPolicy',
    `jsonb_typeof(options -> 'retryPolicy') = 'object'`,
    'an object with a type: fixed, linear, exponential, series or cron',
  ),
  check(
    'debounce',
    `case when jsonb_typeof(options -> 'debounce') = 'object'
      then options -> 'debounce' ? 'wait' and (options -> 'debounce') - array['wait', 'maxWait'] = '{}' end`,
    'an object with wait and, if you like, maxWait',
  ),
].join('');

/** Which options exclude or need each other. */
const TOGETHER = `
    if options ? 'runAt' and options ? 'delay' then
      raise exception 'enqueue: pass either runAt or delay, not both.' using errcode = 'invalid_parameter_value';
    end if;
    if options ? 'debounce' and options ?| array['runAt', 'delay', 'onExisting'] then
      raise exception 'enqueue: debounce sets the due time; leave out runAt, delay and onExisting.'
        using errcode = 'invalid_parameter_value';
    end if;
    if options ?| array['debounce', 'onExisting'] and not options ? 'uniqueKey' then
      raise exception 'enqueue: onExisting and debounce need a uniqueKey.' using errcode = 'invalid_parameter_value';
    end if;`;

/** What a later step adds to the function, which it replaces. */
interface More {
  readonly create: 'create' | 'create or replace';
  readonly options: readonly string[];
  readonly checks: string;
  /** Fields of the job, as arguments of `jsonb_build_object`. */
  readonly fields: string;
}

const NOTHING: More = { create: 'create', options: [], checks: '', fields: '' };

const body = ({ jobs, table, channel }: Names, { options, checks, fields }: More): string => `
  declare
    tick timestamptz := clock_timestamp();
    at timestamptz(3) := date_trunc('milliseconds', tick);
    due timestamptz(3);
    unknown text;
    wait_ms double precision;
    most_ms double precision;
    expire_ms double precision;
    kind text := coalesce(options ->> 'onExisting', 'keep');
    new_id text := options ->> 'id';
    put record;
  begin
    if name is null or btrim(name) = '' then
      raise exception 'enqueue: name must be a text that is not empty.' using errcode = 'invalid_parameter_value';
    end if;
    options := coalesce(options, '{}');
    if jsonb_typeof(options) <> 'object' then
      ${raise('enqueue: options must be an object, got %.', 'options')}
    end if;
    select key into unknown from jsonb_object_keys(options) as key
      where key <> all(array[${[...KEYS, ...options].map((key) => `'${key}'`).join(', ')}]) limit 1;
    if unknown is not null then
      ${raise(`enqueue: unknown option %. Known options: ${[...KEYS, ...options].join(', ')}.`, 'to_jsonb(unknown)')}
    end if;
    ${CHECKS}${checks}
    ${TOGETHER}
    due := at;
    if options ? 'delay' then
      due := at + ${table('duration_ms')}('delay', options -> 'delay', 0) * interval '1 millisecond';
    end if;
    if options ? 'runAt' then
      begin
        due := (options ->> 'runAt')::timestamptz;
      exception when data_exception then
        due := null;
      end;
      if due is null or not isfinite(due) then
        ${raise('enqueue: runAt must be a time such as 2030-01-31T12:00:00Z, got %.', `options -> 'runAt'`)}
      end if;
    end if;
    if options ? 'debounce' then
      kind := 'debounce';
      wait_ms := ${table('duration_ms')}('debounce.wait', options #> '{debounce,wait}', 1);
      most_ms := 5 * wait_ms;
      if options -> 'debounce' ? 'maxWait' then
        most_ms := ${table('duration_ms')}('debounce.maxWait', options #> '{debounce,maxWait}', 1);
      end if;
      if most_ms < wait_ms then
        ${raise('enqueue: debounce.maxWait must not be shorter than debounce.wait, got %.', `options -> 'debounce'`)}
      end if;
      due := at + wait_ms * interval '1 millisecond';
    end if;
    if options ? 'expireIn' then expire_ms := ${table('duration_ms')}('expireIn', options -> 'expireIn', 1); end if;
    new_id := coalesce(new_id, ${table('base32')}((extract(epoch from at) * 1000)::bigint, 9)
      || ${table('base32')}((extract(microseconds from tick)::bigint) % 1000, 5)
      || ${table('base32')}((random() * 1099511627775)::bigint, 8));
    -- A job that may no longer start must not keep its unique key.
    update ${jobs} j set status = 'cancelled', fail_reason = 'expired', finished_at = at, updated_at = at,
      expires_at = at + interval '7 days'
    where kind = 'keep' and j.name = enqueue.name and j.unique_key = options ->> 'uniqueKey' and j.status = 'pending'
      and j.start_by <= clock_timestamp();
    select * into put from ${table('put_job')}(jsonb_strip_nulls(jsonb_build_object(
      'id', new_id, 'name', name, 'priority', coalesce((options ->> 'priority')::integer, 0),
      'next_run_at', due, 'created_at', at, 'unique_key', options -> 'uniqueKey',${fields}
      'timeout_ms', case when options ? 'timeout'
        then ${table('duration_ms')}('timeout', options -> 'timeout', 1) end,
      'timed', case when not options ? 'id' then true end,
      'start_by', due + expire_ms * interval '1 millisecond',
      'debounced_at', case when kind = 'debounce' then at end
    )) || jsonb_build_object('data', coalesce(data, '{}'), 'retry_policy', options -> 'retryPolicy'),
      kind, most_ms, null);
    if (put.job).next_run_at <= at then perform pg_notify('${channel}', '{"what":"jobs"}'); end if;
    return (put.job).id;
  end`;

/** \`select tidemill.enqueue('name', '{…}', '{…}')\`: what \`mill.enqueue\` does, as far as the server can check it. */
export const enqueueFunction = (names: Names, more: More = NOTHING): string =>
  `${more.create} function ${names.table('enqueue')}(name text, data jsonb default '{}', options jsonb default '{}') returns text
    language plpgsql as ${literal(body(names, more))}`;

/** The function, and those that it calls. */
export const enqueueFunctions = (names: Names): readonly string[] => [
  digitsFunction(names),
  durationFunction(names),
  enqueueFunction(names),
];
