import type { Collection, ObjectId } from 'mongodb';
import {
  loadReactive,
  SOURCE,
  TASKS,
  type Data,
  type ReactiveModule,
  type ReactiveName,
} from '../../contenders/reactive/contender.js';
import type { Bench } from '../../lib/bench.js';
import { Child } from '../../lib/child.js';
import { nanos, sinceMs, sleep } from '../../lib/clock.js';
import type { Reacted } from './tasks.js';

/** The settings of an instance. */
export interface InstanceRequest {
  readonly contender: ReactiveName;
  readonly variant: string;
  readonly database: string;
  readonly fetch?: boolean;
  readonly debounce?: number;
  readonly runs?: boolean;
  readonly documents?: number;
  readonly monitor?: boolean;
}

/** Starts a process with one instance of a library; resolves when it is ready. */
export async function instance(
  bench: Bench,
  request: InstanceRequest,
  task = 'reactive:react',
): Promise<Child> {
  const child = new Child({ ...request, uri: bench.uri, task });
  try {
    await child.hear('ready');
    return child;
  } catch (error) {
    child.kill();
    throw error;
  }
}

/** Ends an instance and returns what it did. */
export async function ended(child: Child): Promise<Reacted> {
  child.say('stop');
  const { value } = await child.hear<{ value: Reacted }>('result');
  await child.end();
  return value;
}

interface Item {
  readonly _id: number | ObjectId;
  readonly data: Data;
}

/** A library's work, as the measuring process sees it. */
export class Scene {
  readonly source: Collection<Item>;
  readonly #tasks: Collection;
  readonly #module: ReactiveModule;

  private constructor(bench: Bench, database: string, module: ReactiveModule) {
    const db = bench.client.db(database);
    this.source = db.collection(SOURCE, { writeConcern: { w: 'majority' } });
    this.#tasks = db.collection(TASKS);
    this.#module = module;
  }

  static async of(bench: Bench, database: string, contender: ReactiveName): Promise<Scene> {
    return new Scene(bench, database, await loadReactive(contender));
  }

  /** Writes `count` documents, 1,000 per call by default. */
  async write(count: number, size = 1_000): Promise<void> {
    for (let from = 0; from < count; from += size) {
      const batch = Array.from({ length: Math.min(size, count - from) }, (_, index) => from + index);
      await this.source.insertMany(
        batch.map((n) => ({ _id: n, data: { n, v: 0 } })),
        { ordered: false },
      );
    }
  }

  /** Returns whether the snapshot of a document's task is that of its update `v`. */
  async planned(id: unknown, v: number): Promise<boolean> {
    const filter = { ...this.#module.taskOf(id), 'lastObservedValues.data.v': v };
    return (await this.#tasks.findOne(filter, { projection: { _id: 1 } })) !== null;
  }

  /** Counts the tasks with a snapshot of update `v`. */
  plannedCount(v: number): Promise<number> {
    return this.#tasks.countDocuments({ 'lastObservedValues.data.v': v });
  }

  /** Returns true when there are at least so many tasks, and none of them is to run or runs. */
  async finished(atLeast: number): Promise<boolean> {
    if ((await this.#tasks.findOne(this.#module.unfinished, { projection: { _id: 1 } })) !== null)
      return false;
    return (await this.#tasks.estimatedDocumentCount()) >= atLeast;
  }
}

/** Returns when the condition came true, or undefined if it did not within the limit. */
export async function when(
  condition: () => boolean | Promise<boolean>,
  limitMs: number,
  everyMs = 5,
): Promise<bigint | undefined> {
  const began = nanos();
  while (sinceMs(began) < limitMs) {
    if (await condition()) return nanos();
    await sleep(everyMs);
  }
  return undefined;
}
