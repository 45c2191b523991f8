/**
 * What `init` opened: the client, and three mills on one store, since each is started and stopped by itself. One runs cron
 * tasks, one runs reactive tasks, and the base, which is never started, has locks, transactions and the dashboard.
 */
import { MongoClient, type ClientSession, type Collection, type Document } from 'mongodb';
import { OptionError, Tidemill, TidemillError, type MillEvents, type TidemillOptions } from '../../index.js';
import { mongodb, type MongodbStore } from '../../mongodb/index.js';
import { tasksCollectionOf } from './stored.js';
import type { InitOptions, OnInfo } from './types.js';

export type MongodbMill = Tidemill<MongodbStore>;

/** What `configureForTesting` has set, before the mill of reactive tasks is created. */
export interface TestSettings {
  readonly debounce: number;
  readonly pollMs: number;
}

const millsOptions = (options: InitOptions): Omit<TidemillOptions, 'store' | 'reactive'> => ({
  ...(options.visibilityTimeoutMs === undefined ? {} : { leaseDuration: options.visibilityTimeoutMs }),
  ...(options.monitoring === undefined ? {} : { monitoring: options.monitoring }),
});

/** A handler of the user's must not end what reports to it. */
const safely =
  <T>(handler: (value: T) => unknown) =>
  (value: T): void => {
    try {
      const answer = handler(value);
      if (answer instanceof Promise) answer.catch(() => undefined);
    } catch {
      // There is nobody left to tell.
    }
  };

export class Connection {
  readonly client: MongoClient;
  readonly options: InitOptions;
  readonly onError: (error: Error) => void;
  readonly onInfo: OnInfo;
  readonly #store: MongodbStore;
  readonly #globals: string | undefined;
  #base: MongodbMill | undefined;
  #cron: MongodbMill | undefined;
  #reactive: MongodbMill | undefined;

  constructor(client: MongoClient, options: InitOptions) {
    this.client = client;
    this.options = options;
    this.onError = safely(options.onError ?? ((error: Error) => console.error(error)));
    this.onInfo = safely(options.onInfo ?? (({ message }: { message: string }) => console.log(message)));
    const { databaseName } = client.db();
    this.#globals = globalsOf(options.globalsCollection, databaseName);
    this.#store = mongodb({ client, database: databaseName, collections: { tasks: tasksCollectionOf } });
  }

  get databaseName(): string {
    return this.client.db().databaseName;
  }

  get base(): MongodbMill {
    this.#base ??= this.#listened({ monitoring: { enabled: false } });
    return this.#base;
  }

  get cron(): MongodbMill {
    const { instanceId, cronTaskConcurrency = 1 } = this.options;
    this.#cron ??= this.#listened({
      ...(instanceId === undefined ? {} : { instanceId: `${instanceId}-cron` }),
      concurrency: Math.max(1, Math.floor(cronTaskConcurrency)),
    });
    return this.#cron;
  }

  get hasReactive(): boolean {
    return this.#reactive !== undefined;
  }

  reactive(test?: TestSettings): MongodbMill {
    this.#reactive ??= this.#listened(this.#reactiveOptions(test));
    return this.#reactive;
  }

  #reactiveOptions(test: TestSettings | undefined): Omit<TidemillOptions, 'store'> {
    const { options } = this;
    const concurrency = options.reactiveTaskConcurrency ?? 5;
    const caller = options.reactiveTaskCaller ?? options.taskCaller;
    return {
      ...(options.instanceId === undefined ? {} : { instanceId: options.instanceId }),
      ...(test === undefined ? {} : { pollInterval: { min: test.pollMs } }),
      concurrency: Math.max(50, concurrency),
      reactive: {
        concurrency: Math.max(1, concurrency),
        ...(caller === undefined ? {} : { caller }),
        ...(options.reactiveTaskFilter === undefined ? {} : { filter: options.reactiveTaskFilter }),
        ...(options.reactiveTaskCleanupInterval === undefined
          ? {}
          : { cleanupInterval: options.reactiveTaskCleanupInterval }),
      },
    };
  }

  #listened({ reactive, ...options }: Omit<TidemillOptions, 'store'>): MongodbMill {
    const globals = this.#globals === undefined ? {} : { globalsCollection: this.#globals };
    const mill = new Tidemill({
      ...millsOptions(this.options),
      ...options,
      reactive: { ...reactive, ...globals },
      store: this.#store,
    });
    return mill.on('error', ({ error }: MillEvents['error']) => this.onError(error));
  }
}

function globalsOf(given: InitOptions['globalsCollection'], database: string): string | undefined {
  if (given === undefined || typeof given === 'string') return given;
  if (given.dbName === database) return given.collectionName;
  throw new OptionError(
    `init: globalsCollection is in the database "${given.dbName}", but must be in "${database}".`,
  );
}

async function open(options: InitOptions): Promise<Connection> {
  const { mongoClient, uri, clientOptions, cronExpressionParserOptions } = options;
  if ((cronExpressionParserOptions as { endDate?: unknown } | undefined)?.endDate !== undefined)
    throw new OptionError('init: cronExpressionParserOptions.endDate is not supported.');
  if ((mongoClient === undefined) === (uri === undefined))
    throw new OptionError('init: pass either mongoClient or uri.');
  if (mongoClient !== undefined) {
    if (clientOptions !== undefined) throw new OptionError('init: clientOptions needs uri, not mongoClient.');
    return new Connection(mongoClient, options);
  }
  const client = new MongoClient(uri ?? '', clientOptions);
  try {
    await client.connect();
    return new Connection(client, options);
  } catch (error) {
    await client.close().catch(() => undefined);
    throw error;
  }
}

let connection: Connection | undefined;
let isOpening = false;
let resolveOpened: (opened: Connection) => void;
const opened = new Promise<Connection>((resolve) => (resolveOpened = resolve));

/** Connects, and makes the functions of this module usable. Call it once; after a failure, call it again. */
export async function init(options: InitOptions): Promise<void> {
  if (isOpening || connection !== undefined)
    throw new TidemillError('ALREADY_INITIALIZED', 'init() can be called only once.');
  isOpening = true;
  try {
    connection = await open(options);
    resolveOpened(connection);
  } finally {
    isOpening = false;
  }
}

/** Resolves when `init` has succeeded: cron tasks may be registered before. */
export const whenOpened = (): Promise<Connection> => opened;

export function opening(): Connection {
  if (connection !== undefined) return connection;
  throw new TidemillError('NOT_INITIALIZED', 'Call init() of tidemill/compat/mongodash first.');
}

export const getMongoClient = (): MongoClient => opening().client;

/** Returns a collection of the database that the client's uri names. */
export function getCollection<T extends Document>(name: string): Collection<T> {
  const { client, options } = opening();
  return options.collectionFactory?.<T>(name) ?? client.db().collection<T>(name);
}

export type PostCommitHook = () => void | Promise<void>;

const hooks = new WeakMap<ClientSession, PostCommitHook[]>();

/** Calls `hook` once the transaction of `withTransaction` is committed. */
export function registerPostCommitHook(session: ClientSession, hook: PostCommitHook): void {
  const registered = hooks.get(session);
  if (registered === undefined || !session.inTransaction())
    throw new OptionError(
      'registerPostCommitHook: the session must be that of withTransaction(), with its transaction open.',
    );
  registered.push(hook);
}

/** Runs `callback` in a transaction, and then its hooks. A hook that fails is reported to `onError`. */
export async function withTransaction<T>(callback: (session: ClientSession) => Promise<T>): Promise<T> {
  const { base, onError } = opening();
  let registered: PostCommitHook[] = [];
  const result = await base.withTransaction(async (session) => {
    // A transaction that is tried again begins anew.
    hooks.set(session, (registered = []));
    return callback(session);
  });
  for (const outcome of await Promise.allSettled(registered.map(async (hook) => hook())))
    if (outcome.status === 'rejected') onError(outcome.reason as Error);
  return result;
}
