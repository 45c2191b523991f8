import { decodeCursor, pageOfItems, readDirection, type Cursor } from '../../core/cursor.js';
import { OptionError, TidemillError } from '../../core/errors.js';
import { lazily } from '../../core/lazily.js';
import type { ErrorGroups, ErrorsOptions } from '../../core/records/failure-groups.js';
import { checkBoolean, checkKeys, checkMost, checkName, checkText, show } from '../../core/options.js';
import { toTask, type Task } from '../../core/records/task.js';
import type { Store } from '../../store/port.js';
import type {
  ReactiveStore,
  TaskPageRequest,
  TaskPlan,
  TaskStats,
  TaskStore,
} from '../../store/reactive/reactive.js';
import type { Planning } from '../planner/planning.js';
import { reactiveOf } from '../reactive-of.js';
import { explicit, toTaskFilter, type TasksFilter } from './tasks-filter.js';

/** What a process that only enqueues does without. */
const loadGroups = lazily(() => import('../../core/records/failure-groups.js'));
const loadForget = lazily(() => import('./forget.js'));
const loadPlanning = lazily(() => import('../planner/planning.js'));

/** How many tasks of each status are counted, shared among the names. */
const COUNT_CAP = 100_000;

export interface TasksPageOptions {
  /** How many tasks a page has, from 1 to 1,000. Default: 50. */
  readonly limit?: number;
  /** How many tasks to skip, at most 10,000; a cursor has no limit. Default: 0. */
  readonly skip?: number;
  /** `next` or `previous` of an earlier page with the same sort. Default: the first page. */
  readonly cursor?: string;
  /**
   * The field to sort by: 1 ascending, -1 descending. `scheduledAt` is the same as `runAt`. Default: `{ runAt: -1 }`.
   */
  readonly sort?: Partial<Record<(typeof SORTS)[number], 1 | -1>>;
  /** Also count all matching tasks. Default: false. */
  readonly total?: boolean;
}

/** A task with text that identifies it, for the filter `id` and for links. */
export interface FoundTask extends Task {
  readonly id: string;
}

export interface TaskPage {
  readonly items: readonly FoundTask[];
  readonly next: string | null;
  readonly previous: string | null;
  readonly total?: number;
  /** The query reached its time limit, so more tasks may match. */
  readonly partial?: true;
}

const SORTS = ['runAt', 'scheduledAt', 'createdAt', 'updatedAt'] as const;
const MOST_SKIPPED = 10_000;
const SAME_SORT = '`next` or `previous` of an earlier page with the same sort';
const ONE: TaskPageRequest = { field: 'scheduledAt', direction: -1, limit: 1, skip: 0 };

interface TaskCursor extends Cursor {
  readonly at: Date;
}

function sortOf(
  where: string,
  sort: TasksPageOptions['sort'] = { runAt: -1 },
): [TaskPageRequest['field'], 1 | -1] {
  checkKeys(`${where}: sort`, sort, SORTS);
  const [entry, ...others] = Object.entries(sort) as [(typeof SORTS)[number], 1 | -1][];
  if (entry === undefined || others.length > 0 || ![1, -1].includes(entry[1]))
    throw new OptionError(
      `${where}: sort must be one of runAt, createdAt, updatedAt with 1 or -1, got ${show(sort)}.`,
    );
  const [field, direction] = entry;
  return [field === 'runAt' ? 'scheduledAt' : field, direction];
}

/** Rejects a query in place of an id: it would find the task of another document. */
function checkDocId(where: string, docId: unknown): void {
  if (typeof docId !== 'object' || docId === null) return;
  const isPattern = docId instanceof RegExp || (docId as { _bsontype?: unknown })._bsontype === 'BSONRegExp';
  const keys = docId instanceof Map ? [...docId.keys()].map(String) : Object.keys(docId);
  const operator = keys.find((key) => key.startsWith('$'));
  if (!isPattern && operator === undefined) return;
  const got = operator === undefined ? 'a regular expression' : `an object with ${show(operator)}`;
  throw new OptionError(
    `${where}: docId must be the _id of a document, got ${got}. To search, use tasks.find({ sourceDocFilter }).`,
  );
}

/** Manages reactive tasks: lists them, groups their failures, runs them again, pauses, reconciles and forgets them. */
export class Tasks {
  readonly #store: () => Promise<Store>;
  readonly #plans: () => ReadonlyMap<string, TaskPlan>;
  #tasks: TaskStore | undefined;

  constructor(store: () => Promise<Store>, plans: () => ReadonlyMap<string, TaskPlan>) {
    this.#store = store;
    this.#plans = plans;
  }

  /** Returns one page of tasks. */
  async find(filter: TasksFilter = {}, options: TasksPageOptions = {}): Promise<TaskPage> {
    const where = 'tasks.find';
    const wanted = toTaskFilter(where, filter);
    checkKeys(where, options, ['limit', 'skip', 'cursor', 'sort', 'total']);
    const { limit = 50, skip = 0, cursor, total = false } = options;
    checkBoolean(where, 'total', total);
    for (const [name, value, most] of [
      ['limit', limit, 1_000],
      ['skip', skip, MOST_SKIPPED],
    ] as const) {
      const least = name === 'limit' ? 1 : 0;
      if (!Number.isInteger(value) || value < least || value > most) {
        const fix = name === 'skip' && value > most ? ' Use `cursor` to go further.' : '';
        throw new OptionError(
          `${where}: ${name} must be a whole number from ${String(least)} to ${String(most)}, got ${show(value)}.${fix}`,
        );
      }
    }
    const [field, direction] = sortOf(where, options.sort);
    const sort = `${field}:${String(direction)}`;
    const isOurs = (one: Cursor): one is TaskCursor => one.at !== null && one.sort === sort;
    const from = cursor === undefined ? undefined : decodeCursor(where, cursor, isOurs, SAME_SORT);
    const tasks = await this.#open();
    const found = await tasks.find(wanted, {
      field,
      direction: readDirection(direction, from),
      limit,
      skip,
      ...(from === undefined ? {} : { after: { at: from.at, key: from.key } }),
    });
    const { items, next, previous } = pageOfItems(
      { items: found.tasks, more: found.more },
      { from, isFirst: from === undefined && skip === 0 },
      (record, back) => ({ at: record[field], key: tasks.cursorKey(record), back, sort }),
    );
    return {
      items: items.map((record) => ({ ...toTask(record), id: tasks.cursorKey(record) })),
      next,
      previous,
      ...(total ? { total: await tasks.count(wanted) } : {}),
      ...(found.partial ? { partial: true as const } : {}),
    };
  }

  /** Returns the task of one document, or undefined if it has none. */
  async get(task: string, docId: unknown): Promise<FoundTask | undefined> {
    checkText('tasks.get', 'task', task);
    checkDocId('tasks.get', docId);
    const page = await this.find({ task, sourceDocFilter: { _id: docId } }, { limit: 1 });
    if (page.items.length > 0) return page.items[0];
    // A deleted document may still have its task.
    return (await this.find({ task, _id: { task, id: docId } }, { limit: 1 })).items[0];
  }

  async count(filter: TasksFilter = {}, options: { readonly limit?: number } = {}): Promise<number> {
    const wanted = toTaskFilter('tasks.count', filter);
    const most = checkMost('tasks.count', options);
    return (await this.#open()).count(wanted, most);
  }

  /**
   * Counts tasks by name and status, and tells when the first is due. Stops at 100,000 tasks of each status, shared
   * among the names.
   */
  async stats(): Promise<readonly TaskStats[]> {
    return (await this.#open()).stats(COUNT_CAP);
  }

  /** Groups failed tasks by name and message, ignoring ids and numbers in messages. */
  async errors(options: ErrorsOptions = {}): Promise<ErrorGroups> {
    const { checkErrorsOptions, groupsOf } = await loadGroups();
    const { limit, name } = checkErrorsOptions('tasks.errors', options);
    return groupsOf(await (await this.#open()).failures(limit + 1, name), limit);
  }

  /**
   * Returns the source document of a task as it is now, by the task's `id`; undefined if the task or the document is
   * gone.
   */
  async document(
    id: string,
  ): Promise<{ readonly collection: string; readonly document: unknown } | undefined> {
    const tasks = await this.#open();
    const { tasks: found } = await tasks.find(toTaskFilter('tasks.document', { id }), ONE);
    return found[0] && tasks.document(found[0]);
  }

  /** Returns who plans, how long due tasks have waited, what is being reconciled and which tasks are left out. */
  async planning(): Promise<Planning> {
    const { planningOf } = await loadPlanning();
    return planningOf(await this.#store(), await this.#open());
  }

  /** Starts a new sequence of attempts for matching tasks. Those that are running run again afterwards. */
  async retryMany(filter: TasksFilter | { readonly all: true }): Promise<{ readonly count: number }> {
    const wanted = explicit('tasks.retryMany', filter);
    const count = await (await this.#open()).retryMany(wanted);
    if (count > 0) await (await this.#reactive()).planner.notifyPeers(false);
    return { count };
  }

  /** Prevents tasks of this name from starting, in the whole cluster, until `resume`. */
  async pause(task: string): Promise<void> {
    checkName('tasks.pause', 'task', task);
    await (await this.#open()).pause(task);
    await (await this.#reactive()).planner.notifyPeers(false);
  }

  /** Returns the tasks that are paused (`until` is null) or throttled in the whole cluster until a time. */
  async paused(): Promise<readonly { readonly task: string; readonly until: Date | null }[]> {
    const pauses = await (await this.#open()).pauses();
    return [...pauses].map(([task, until]) => ({ task, until })).sort((a, b) => (a.task < b.task ? -1 : 1));
  }

  async resume(task: string): Promise<void> {
    checkText('tasks.resume', 'task', task);
    await (await this.#open()).resume(task);
    await (await this.#reactive()).planner.notifyPeers(false);
  }

  /** Asks the leader to reconcile every document, for one task or for all. Returns the names of the tasks. */
  async reconcile(task?: string): Promise<{ readonly tasks: readonly string[] }> {
    if (task !== undefined) checkText('tasks.reconcile', 'task', task);
    const { planner } = await this.#reactive();
    const tasks = await planner.request(task === undefined ? undefined : [task], 'asked for');
    if (task !== undefined && tasks.length === 0)
      throw new TidemillError(
        'TASK_MISSING',
        `tasks.reconcile: no task ${show(task)} is known to the database yet. Start an instance that defines it first.`,
      );
    await planner.notifyPeers(true);
    return { tasks };
  }

  /**
   * Forgets a task that left the code: deletes its records, its definitions and, on PostgreSQL, the triggers that no other
   * task needs. Refused while a live instance runs it. After a crash, call it again. Returns how many records it
   * deleted. If the task is deployed again, it starts as new.
   */
  async forget(task: string): Promise<{ readonly records: number }> {
    checkText('tasks.forget', 'task', task);
    const { forgetTask } = await loadForget();
    return { records: await forgetTask(await this.#store(), task) };
  }

  async #reactive(): Promise<ReactiveStore> {
    return reactiveOf(await this.#store());
  }

  async #open(): Promise<TaskStore> {
    this.#tasks ??= (await this.#reactive()).tasks(this.#plans);
    await this.#store();
    return this.#tasks;
  }
}
