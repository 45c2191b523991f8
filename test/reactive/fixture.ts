import { MongoClient, type Collection, type Db, type Document } from 'mongodb';
import { mongodb } from '../../src/mongodb/index.js';
import type { ReactiveTaskDefinition, TaskContext, Tidemill, TidemillOptions } from '../../src/index.js';
import { aMill, until } from '../support/mills.js';
import { freshUri } from '../support/stores.js';
import { cleanUpAfterEach } from '../support/cleanup.js';

/** Documents of any id, as these tests write them. */
export interface Doc {
  _id?: string | number | boolean | object | null;
  [field: string]: unknown;
}

export interface Run {
  readonly task: string;
  readonly id: unknown;
  readonly values: Record<string, unknown>;
  readonly attempt: number;
}

type Definition = Partial<ReactiveTaskDefinition<Document, never>> & { readonly collection: string };

const MARKERS = 'markers';
const ends: (() => Promise<void>)[] = [];

// Registered after the hook that stops the mills, and so run before it. Databases are not dropped, which would be an
// event of its own under a running mill; they go with the server at the end of the run.
cleanUpAfterEach(() => Promise.all(ends.splice(0).map((end) => end())));

/** The database of one test, with mills on it and a record of the calls of their handlers. */
export class Fixture {
  readonly uri: string;
  readonly client: MongoClient;
  readonly runs: Run[] = [];
  readonly errors: Error[] = [];
  readonly #defined = new Set<string>();
  readonly #reconciled = new Set<string>();
  #marks = 0;

  constructor(uri: string = freshUri()) {
    this.uri = uri;
    this.client = new MongoClient(uri);
    ends.push(() => this.client.close());
  }

  get db(): Db {
    return this.client.db();
  }

  collection(name: string, database?: string): Collection<Doc> {
    return this.client.db(database).collection<Doc>(name);
  }

  tasks(name: string, database?: string): Collection<Doc> {
    return this.collection(`${name}_tasks`, database);
  }

  /** The stored task of a document, whatever its state. */
  async task(collection: string, id: unknown, task = 'task'): Promise<Document | null> {
    return this.tasks(collection).findOne({ _id: { task, id } } as never);
  }

  mill(options: Partial<TidemillOptions> = {}): Tidemill {
    const mill = aMill(mongodb({ uri: this.uri }), { pollInterval: { min: 10, max: 1_000 }, ...options });
    mill.on('error', ({ error }) => this.errors.push(error));
    mill.on('reconcile:complete', ({ tasks }) => tasks.forEach((task) => this.#reconciled.add(task)));
    return mill;
  }

  /** Defines a task that records its runs; a given handler runs after that. */
  define(mill: Tidemill, { handler, ...definition }: Definition): Promise<void> {
    this.#defined.add(definition.task ?? 'task');
    return mill.reactiveTask<Document>({
      task: 'task',
      debounce: 0,
      ...definition,
      handler: async (context: TaskContext<Document, never>) => {
        const { task, docId: id, watchedValues: values, attempt } = context;
        this.runs.push({ task, id, values, attempt });
        await handler?.(context);
      },
    });
  }

  /** One started mill with one task; the markers of `quiet` have a task of their own. */
  async started(definition: Definition, options: Partial<TidemillOptions> = {}): Promise<Tidemill> {
    const mill = this.mill(options);
    void this.define(mill, definition);
    this.mark(mill);
    await mill.start();
    await this.ready();
    return mill;
  }

  /** Documents that existed before have been planned; from here on everything comes by the change stream. */
  async ready(): Promise<void> {
    await until('every task was reconciled', () =>
      [...this.#defined].every((task) => this.#reconciled.has(task)),
    );
  }

  mark(mill: Tidemill): void {
    void this.define(mill, { task: 'mark', collection: MARKERS });
  }

  of(id: unknown, task = 'task'): readonly Run[] {
    const text = JSON.stringify(id);
    return this.runs.filter((run) => run.task === task && JSON.stringify(run.id) === text);
  }

  /** Waits until a document's handler was called this often, and fails if it was called more often. */
  async ran(id: unknown, times = 1, task = 'task'): Promise<readonly Run[]> {
    await until(
      () =>
        `${task} ran ${times} times for ${JSON.stringify(id)}; errors: ${this.errors.map(String).join('; ')}`,
      () => this.of(id, task).length >= times,
    );
    if (this.of(id, task).length > times) throw new Error(`${task} ran ${this.of(id, task).length} times`);
    return this.of(id, task);
  }

  /**
   * Everything that was written before this call has been planned, and everything that is due has run. A second marker
   * is planned in a later batch than the first, and batches are planned in order.
   */
  async quiet(collections: readonly string[] = []): Promise<void> {
    for (let n = 0; n < 2; n += 1) {
      const mark = `mark ${(this.#marks += 1)}`;
      await this.collection(MARKERS).insertOne({ _id: mark });
      await this.ran(mark, 1, 'mark');
    }
    for (const name of collections) {
      await until(`nothing of ${name} is in flight`, async () => {
        const open = { status: { $in: ['pending', 'processing', 'processing_dirty'] } };
        return (await this.tasks(name).countDocuments(open)) === 0;
      });
    }
  }

  /** The handler's end is recorded as well. */
  async settled(collection: string, id: unknown, status = 'completed', task = 'task'): Promise<Document> {
    return until(`${task} of ${JSON.stringify(id)} is ${status}`, async () => {
      const row = await this.task(collection, id, task);
      return row?.['status'] === status && row;
    });
  }
}
