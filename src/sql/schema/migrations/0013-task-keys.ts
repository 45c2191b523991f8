import { keyFunctions } from './0012-keys.js';
import { keysTables } from './0012-limits.js';
import { keyTriggers } from './0012-triggers.js';
import { keyedTasks, TASK_KEY, type KeyedTable } from './keyed-table.js';
import type { Migration } from './migration.js';

/** Tasks without a key are in none of them. */
const keyIndexes = ({ rows, runs }: KeyedTable): readonly string[] => [
  // claim by keys: the head of each key.
  `create index if not exists tasks_keyed on ${rows} ((${TASK_KEY}), scheduled_at, key)
     where status = 'pending' and limit_key is not null`,
  // claim by keys: what runs of each key.
  `create index if not exists tasks_keyed_held on ${rows} ((${TASK_KEY}))
     where ${runs('')} and limit_key is not null`,
];

export const taskKeys: Migration = {
  version: 13,
  name: 'task-keys',
  compatibleSince: 6,
  up: (names) => {
    const work = keyedTasks(names);
    return [
      // limit_key: by which key limits count the task. next_limit_key: its key from the end of its run on, since a change
      // must not move work that runs. A step back keeps both.
      `alter table ${work.rows}
         add column if not exists limit_key text collate "C",
         add column if not exists next_limit_key text collate "C"`,
      ...keysTables(work),
      ...keyIndexes(work),
      ...keyTriggers(work),
      ...keyFunctions(names, work),
    ];
  },
};
