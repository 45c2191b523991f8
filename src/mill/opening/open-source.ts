/** Opens databases of other libraries, for tools. Each driver is loaded by the folder of its store. */
import { OptionError } from '../../core/errors.js';

/** The part of a MongoDB collection that importers use. */
interface SourceCollection {
  find(filter: object, options?: object): AsyncIterable<SourceDocument>;
  countDocuments(filter: object): Promise<number>;
  /** Deletes a document that `find` has returned, if it is still exactly as it was. Returns whether it did. */
  deleteUnchanged(document: SourceDocument): Promise<boolean>;
  /** Differs if a document that `find` has returned has changed since. */
  version(document: SourceDocument): string;
  listIndexes(): { toArray(): Promise<readonly { readonly key: object }[]> };
}

export type SourceDocument = Readonly<Record<string, unknown>> & { readonly _id: unknown };

export interface MongoSource extends AsyncDisposable {
  /** The database that the URL names. */
  readonly database: string;
  collection(name: string): SourceCollection;
  collections(): Promise<readonly string[]>;
}

export type SourceRow = Readonly<Record<string, unknown>>;

interface PostgresSource extends AsyncDisposable {
  query(text: string, values?: readonly unknown[]): Promise<readonly SourceRow[]>;
}

/** Whatever the URL says: a deletion that is not acknowledged, or an old record, would lose work. */
const SAFE = {
  readPreference: 'primary',
  writeConcern: { w: 'majority' },
} as const;

/** Connects to a MongoDB database that is not a store. */
export async function openMongoSource(url: string): Promise<MongoSource> {
  const [{ ownClient }, { sourceCollection }] = await Promise.all([
    import('../../mongodb/client.js'),
    import('../../mongodb/source-collection.js'),
  ]).catch((cause: unknown) => {
    throw new OptionError('Reading MongoDB needs the driver: npm install mongodb', { cause });
  });
  const client = ownClient(url);
  const database = client.options.dbName;
  const db = client.db(database, SAFE);
  return {
    database,
    collection: (name) => sourceCollection(db.collection(name)),
    collections: async () =>
      (await db.listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name),
    [Symbol.asyncDispose]: () => client.close(),
  };
}

/** Connects to a PostgreSQL database that is not a store. */
export async function openPostgresSource(url: string): Promise<PostgresSource> {
  const { ownPool } = await import('../../postgres/own-pool.js').catch((cause: unknown) => {
    throw new OptionError('Reading PostgreSQL needs the driver: npm install pg', { cause });
  });
  const { pool, end } = ownPool({ connectionString: url, application_name: 'tidemill import', max: 2 });
  return {
    query: async (text, values = []) => (await pool.query<SourceRow>(text, [...values])).rows,
    [Symbol.asyncDispose]: end,
  };
}
