import { ORDER_COUNT_DIGITS, ORDER_DUE_DIGITS } from '../../../core/records/limit-order.js';
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

const KEY_CHECK = check(
  'key',
  `jsonb_typeof(options -> 'key') in ('string', 'number') and length(options ->> 'key') <= 1024`,
  'a text of up to 1024 characters or a number',
);

/** The functions that store jobs, now with the limit key of the job and its place among those of its key. */
export const keyedFunctions = (names: Names): readonly string[] => [
  putFunction(names, {
    create: 'create or replace',
    columns: ['limit_key', 'limit_order'],
    rescheduled: RESCHEDULED,
    replaced: REPLACED,
  }),
  enqueueFunction(names, {
    create: 'create or replace',
    options: ['key'],
    checks: KEY_CHECK,
    fields: `
      'limit_key', options -> 'key' #>> '{}', 'limit_order', case when options ? 'key' then ${ORDER} end,`,
  }),
];
