/** The tables of one test, in their own schema that is first on the search path, with mills that watch them. */
import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { inject, onTestFinished } from 'vitest';
import type { ReactiveTaskDefinition, Task, Tidemill, TidemillOptions } from '../../../src/index.js';
import { postgres, type PostgresOptions, type PostgresStore } from '../../../src/postgres/index.js';
import { aMill, until } from '../../support/mills.js';

export interface Run {
  readonly task: string;
  readonly id: unknown;
  readonly values: Record<string, unknown>;
  readonly document: unknown;
}

type Definition = Partial<ReactiveTaskDefinition> & { readonly collection: string };

export class Tables {
  readonly data: string = `data_${randomBytes(6).toString('hex')}`;
  readonly schema: string;
  readonly url: string;
  readonly pool: pg.Pool;
  readonly runs: Run[] = [];
  readonly errors: Error[] = [];
  readonly reconciled: string[] = [];

  constructor(schema = `test_${randomBytes(6).toString('hex')}`) {
    this.schema = schema;
    this.url = `${inject('postgresUrl')}?options=${encodeURIComponent(`-c search_path=${this.data}`)}`;
    this.pool = new pg.Pool({ connectionString: this.url, max: 6 });
    this.pool.on('error', () => undefined);
    onTestFinished(() => this.pool.end());
  }

  static async make(...statements: readonly string[]): Promise<Tables> {
    const tables = new Tables();
    await tables.ask(`create schema ${tables.data}`);
    for (const statement of statements) await tables.ask(statement);
    return tables;
  }

  async ask(text: string, values: unknown[] = []): Promise<Record<string, unknown>[]> {
    return (await this.pool.query<Record<string, unknown>>(text, values)).rows;
  }

  /** A connection on which a transaction may be left open. */
  async connection(): Promise<pg.PoolClient> {
    const client = await this.pool.connect();
    onTestFinished(() => client.release(true));
    return client;
  }

  store(options: Partial<PostgresOptions> = {}): PostgresStore {
    return postgres({ url: this.url, schema: this.schema, connections: 4, ...options });
  }

  mill(store: PostgresStore = this.store(), options: Partial<TidemillOptions> = {}): Tidemill<PostgresStore> {
    const mill = aMill(store, {
      pollInterval: { min: 10, max: 1_000 },
      ...options,
    }) as Tidemill<PostgresStore>;
    mill.on('error', ({ error }) => this.errors.push(error));
    mill.on('reconcile:complete', ({ collection }) => this.reconciled.push(collection));
    return mill;
  }

  /** Defines a task that records its runs. */
  define(mill: Tidemill<PostgresStore>, { handler, ...definition }: Definition): Promise<void> {
    return mill.reactiveTask({
      task: 'task',
      debounce: 0,
      ...definition,
      handler: async (context) => {
        const { task, docId: id, watchedValues: values, getDocument } = context;
        this.runs.push({ task, id, values, document: await getDocument() });
        await handler?.(context);
      },
    });
  }

  /** One started mill with one task, whose rows were reconciled once. */
  async started(
    definition: Definition,
    options: Partial<TidemillOptions> = {},
  ): Promise<Tidemill<PostgresStore>> {
    const mill = this.mill(this.store(), options);
    void this.define(mill, definition);
    await mill.start();
    await until('the table was looked at once', () => this.reconciled.length > 0);
    return mill;
  }

  of(id: unknown): readonly Run[] {
    return this.runs.filter((run) => JSON.stringify(run.id) === JSON.stringify(id));
  }

  async ran(id: unknown, times = 1): Promise<readonly Run[]> {
    const errors = (): string => this.errors.map(String).join('; ');
    await until(
      () =>
        `the task of ${JSON.stringify(id)} ran ${String(times)} times; ${String(this.runs.length)} runs; errors: ${errors()}`,
      () => this.of(id).length >= times,
    );
    return this.of(id);
  }

  /** Everything that was committed before this call has been planned, and has run. */
  async quiet(): Promise<void> {
    await until('no change waits', async () => {
      const [row] = await this.ask(`select count(*)::int as n from ${this.schema}.changes`);
      return row?.['n'] === 0;
    });
    await until('no task waits', async () => {
      const [row] = await this.ask(
        `select count(*)::int as n from ${this.schema}.tasks where status not in ('completed', 'failed')`,
      );
      return row?.['n'] === 0;
    });
  }

  async settled(mill: Tidemill<PostgresStore>, id: unknown, status = 'completed'): Promise<Task> {
    return until(`the task of ${JSON.stringify(id)} is ${status}`, async () => {
      const task = await mill.tasks.get('task', id);
      return task?.status === status && task;
    });
  }
}
