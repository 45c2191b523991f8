/** What limits per key need to know of a table of work: the functions and statements about keys are the same for all. */
import { reactiveNames } from '../../reactive/names.js';
import type { Names } from '../names.js';

/** A SQL expression: a key as it is indexed. An index entry has no room for every text. */
export const KEY = (text: string): string =>
  `case when octet_length(${text}) > 500 then 'md5:' || md5(${text}) else ${text} end`;

/**
 * A SQL expression: the name and the key of work in one text, of which nothing else is indexed. So no statement about a
 * key can be planned by an index of names, in which it would read what waits under other keys. `prefix` and the range
 * from it to `prefix;` hold one name, since no other text begins with its length and itself.
 */
export const KEY_OF_NAME = (name: string, key: string): string =>
  `octet_length(${name})::text || ':' || ${name} || ':' || ${key}`;
/** The same for a job, and for a task. */
export const JOB_KEY: string = KEY_OF_NAME('name', `(${KEY('limit_key')})`);
export const TASK_KEY: string = KEY_OF_NAME('task', `(${KEY('limit_key')})`);

export interface KeyedTable {
  readonly rows: string;
  /** Columns: the name of the work, when it is due, what breaks ties. */
  readonly name: string;
  readonly due: string;
  readonly id: string;
  /** A SQL expression: the name and the key of a row, as indexed. */
  readonly ofName: string;
  /** A condition: the row runs. `of` qualifies its columns, such as `old.`. */
  readonly runs: (of: string) => string;
  /** A further condition with its `and`: the row may start yet. */
  readonly inTime: string;
  /** A further condition with its `and`, for work with priorities: the row has the priority `level`. */
  readonly level: string;
  /** The work of a key may have an order, in `limit_order`. */
  readonly hasOrder: boolean;
  /** A condition: work of this name, a SQL expression, is paused. */
  readonly isPaused: (name: string) => string;
  /** The tables of keys and of what claims have to look at. */
  readonly keys: string;
  readonly wakes: string;
  /** Quotes the name of a function of this kind of work. */
  readonly call: (name: string) => string;
  /** The name by which a statement refers to parameters of that function, or to columns of `keys`. */
  readonly called: (name: string) => string;
  /** Part of the lock under which claims of a name go one after the other. */
  readonly lock: string;
}

export const keyedJobs = ({ jobs, pauses, table }: Names): KeyedTable => ({
  rows: jobs,
  name: 'name',
  due: 'next_run_at',
  id: 'id',
  ofName: JOB_KEY,
  runs: (of) => `${of}status = 'processing'`,
  // An expired job waits for maintenance to cancel it, and holds nothing until then.
  inTime: ` and (start_by is null or start_by > clock_timestamp())`,
  level: ' and priority = level',
  hasOrder: true,
  isPaused: (name) => `exists (select from ${pauses} p where p.kind = 'jobs' and p.name in (${name}, ''))`,
  keys: table('job_keys'),
  wakes: table('key_wakes'),
  call: table,
  called: (name) => (name === 'keys' ? 'job_keys' : name),
  lock: 'keys',
});

export const keyedTasks = (names: Names): KeyedTable => ({
  rows: reactiveNames(names).tasks,
  name: 'task',
  due: 'scheduled_at',
  id: 'key',
  ofName: TASK_KEY,
  runs: (of) => `${of}status in ('processing', 'processing_dirty')`,
  inTime: '',
  level: '',
  hasOrder: false,
  isPaused: (name) => `exists (select from ${names.pauses} p
            where (p.kind = 'tasks' and p.name = ${name} and (p.until is null or p.until > clock_timestamp()))
              or (p.kind = 'jobs' and p.name = ''))`,
  keys: names.table('task_keys'),
  wakes: names.table('task_key_wakes'),
  call: (name) => names.table(`task_${name}`),
  called: (name) => `task_${name}`,
  lock: 'task-keys',
});
