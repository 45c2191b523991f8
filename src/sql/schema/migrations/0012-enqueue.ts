import type { Names } from '../names.js';
import { check, enqueueFunction } from './0011-enqueue.js';
import { putFunction } from './0011-existing.js';

const digitsOf = (value: string, width: number): string =>
  `lpad((${value})::bigint::text, ${String(width)}, '0')`;
const msOf = (time: string): string => `greatest(0, floor(extract(epoch from ${time}) * 1000))`;

/** As `orderOf` of src/core/records/limit-order.ts makes it: by due time, then by the time of the call. */
const ORDER = [
  digitsOf(msOf('due'), 15),
  digitsOf(msOf('at'), 15),
  digitsOf('extract(microseconds from tick)::bigint % 1000', 9),
].join(` || '-' || `);

const KEY_CHECK = check(
  'key',
  `jsonb_typeof(options -> 'key') in ('string', 'number') and length(options ->> 'key') <= 1024`,
  'a text of up to 1024 characters or a number',
);

/** The functions that store jobs, now with the limit key of the job and its place among those of its key. */
export const keyedFunctions = (names: Names): readonly string[] => [
  putFunction(names, { create: 'create or replace', columns: ['limit_key', 'limit_order'] }),
  enqueueFunction(names, {
    create: 'create or replace',
    options: ['key'],
    checks: KEY_CHECK,
    fields: `
      'limit_key', options -> 'key' #>> '{}', 'limit_order', case when options ? 'key' then ${ORDER} end,`,
  }),
];
