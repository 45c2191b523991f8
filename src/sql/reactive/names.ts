import type { Names } from '../schema/names.js';

/** Quoted names of the tables and functions of reactive tasks. */
export interface ReactiveNames {
  readonly tasks: string;
  /** Where triggers record which rows changed, in no particular order. */
  readonly changes: string;
  readonly changeNumbers: string;
  /** A sequence used as a flag: its value is 1 while the planner wants to be woken. */
  readonly idle: string;
  readonly sources: string;
  readonly definitions: string;
  readonly states: string;
  readonly planner: string;
  /** The leaders of the partitions from 1 on, and the states of tasks in them. */
  readonly partitions: string;
  readonly partitionStates: string;
  readonly checkpoints: string;
  /** The function that runs a statement under fixed settings. */
  readonly pinned: string;
  /** The function that picks parts out of JSON with arrays. */
  readonly picked: string;
  /** One row: the limit of `changes`, and how far missed changes were reconciled. */
  readonly outbox: string;
  /** Sequences of the outbox limit; `feed/outbox.ts` explains them. */
  readonly captureCheck: string;
  readonly captureGeneration: string;
  readonly captureMissed: string;
  /** The function that decides whether triggers record changes. */
  readonly mayCapture: string;
  /** A SQL expression: the key of the advisory lock that a transaction shares while it leaves changes out. */
  readonly captureLock: string;
  /** The channel on which triggers wake the planner; only the planner listens on it. */
  readonly changesChannel: string;
}

/** A text literal, for SQL that takes no parameters, such as the definition of a trigger. */
export const literal = (text: string): string =>
  text.includes('\\')
    ? `E'${text.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`
    : `'${text.replaceAll("'", "''")}'`;

export const reactiveNames = ({ schema, table, channel }: Names): ReactiveNames => ({
  tasks: table('tasks'),
  changes: table('changes'),
  changeNumbers: table('change_numbers'),
  idle: table('planner_idle'),
  sources: table('sources'),
  definitions: table('definitions'),
  states: table('task_states'),
  planner: table('planner'),
  partitions: table('planner_partitions'),
  partitionStates: table('partition_states'),
  checkpoints: table('checkpoints'),
  pinned: table('pinned'),
  picked: table('picked'),
  outbox: table('outbox'),
  captureCheck: table('capture_check'),
  captureGeneration: table('capture_generation'),
  captureMissed: table('capture_missed'),
  mayCapture: table('may_capture'),
  captureLock: `hashtextextended(${literal(`tidemill:${schema}:missed`)}, 0)`,
  changesChannel: `${channel}_changes`,
});
