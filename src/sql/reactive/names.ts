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
  readonly checkpoints: string;
  /** The function that runs a statement under fixed settings. */
  readonly pinned: string;
  /** The function that picks parts out of JSON with arrays. */
  readonly picked: string;
  /** The channel on which triggers wake the planner; only the planner listens on it. */
  readonly changesChannel: string;
}

/** A text literal, for SQL that takes no parameters, such as the definition of a trigger. */
export const literal = (text: string): string =>
  text.includes('\\')
    ? `E'${text.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`
    : `'${text.replaceAll("'", "''")}'`;

export const reactiveNames = ({ table, channel }: Names): ReactiveNames => ({
  tasks: table('tasks'),
  changes: table('changes'),
  changeNumbers: table('change_numbers'),
  idle: table('planner_idle'),
  sources: table('sources'),
  definitions: table('definitions'),
  states: table('task_states'),
  planner: table('planner'),
  checkpoints: table('checkpoints'),
  pinned: table('pinned'),
  picked: table('picked'),
  changesChannel: `${channel}_changes`,
});
