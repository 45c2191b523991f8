import type { Collection, CollectionOptions, Db, Document } from 'mongodb';
import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import type { Source, TaskPlan } from '../../store/reactive/reactive.js';
import { BSON_OPTIONS, type Mongo } from '../context.js';
import { EXACT } from '../exact.js';
import {
  createIndexes,
  exactIdIndex,
  indexFaults,
  missingIndexError,
  taskIndexes,
  type IndexPlan,
} from '../indexes.js';
import { Majority } from '../majority.js';

/** Returns the source of a task, whose collection of tasks holds it. */
export type SourceOf = (task: string) => Source;

/** A source and its task collection, open. */
export interface Place {
  readonly db: Db;
  readonly source: Collection;
  readonly tasks: Collection;
  /** The source's own collation, if it is not the simple one: filter and comparison then need two statements. */
  readonly collation?: Document;
}

/** Adds to each task, as `found`, its document if that exists and matches the query. */
export const lookUp = ({ source }: Place, query: Document): Document => ({
  $lookup: {
    from: source.collectionName,
    localField: 'sourceDocId',
    foreignField: '_id',
    pipeline: [{ $match: query }, { $project: { _id: 1 } }],
    as: 'found',
  },
});

/** The keys of those tasks whose document is gone or does not match the query. */
export const withoutDocument = (place: Place, query: Document): Document[] => [
  { $project: { sourceDocId: 1 } },
  lookUp(place, query),
  { $match: { found: { $size: 0 } } },
  { $project: { _id: 1 } },
];

/** All tasks of a document. Only collections of many tasks need it: where their tasks lost a document, it finds them. */
export const documentIndex: IndexPlan = { name: 'tidemill_by_document', key: { sourceDocId: 1 } };
/** From how many tasks of a source on. */
const MANY = 10;

export const nameOfSource = ({ database = '', collection }: Source): string => `${database}.${collection}`;

/** Opens sources and their task collections, and remembers the collations of the sources. */
export class MongodbSources {
  readonly #mongo: () => Mongo;
  readonly #nameOf: (collection: string) => string;
  readonly #create: boolean | 'unchecked';
  readonly majority: Majority = new Majority();
  /** Collations of the sources that exist; null is the simple one. */
  readonly #collations = new Map<string, Document | null>();
  /** Whether the tasks of a source have the index by document; false while it is built or looked for. */
  readonly #byDocument = new Map<string, boolean>();

  constructor(mongo: () => Mongo, nameOf: (collection: string) => string, create: boolean | 'unchecked') {
    this.#mongo = mongo;
    this.#nameOf = nameOf;
    this.#create = create;
  }

  get mongo(): Mongo {
    return this.#mongo();
  }

  db(database: string | undefined): Db {
    const { client, globals } = this.#mongo();
    return client.db(database ?? globals.dbName);
  }

  place(source: Source): Place {
    const options: CollectionOptions = { ...this.#mongo().options, ...EXACT };
    const db = this.db(source.database);
    const collation = this.#collations.get(nameOfSource(source)) ?? undefined;
    return {
      db,
      source: db.collection(source.collection, options),
      tasks: db.collection(this.#nameOf(source.collection), options),
      ...(collation === undefined ? {} : { collation }),
    };
  }

  /** Like `place`, and also learns the collation of a source that was created after its task was defined. */
  async open(source: Source): Promise<Place> {
    if (!this.#collations.has(nameOfSource(source))) await this.#inspect(source);
    return this.place(source);
  }

  /** Forgets the collation: the collection may have been recreated. */
  forget(source: Source): void {
    this.#collations.delete(nameOfSource(source));
    this.#byDocument.delete(nameOfSource(source));
  }

  /**
   * True if an index finds the tasks of a document. For many tasks, builds it if there is none; nothing waits for that.
   * If the store must not create indexes, one made by hand is used. Not on a sharded cluster, where `_id` may be all
   * that leads to a shard.
   */
  findsByDocument(source: Source, tasks: number): boolean {
    const name = nameOfSource(source);
    const known = this.#byDocument.get(name);
    if (known !== undefined || tasks < MANY || this.#mongo().sharded) return known === true;
    this.#byDocument.set(name, false);
    const { tasks: collection } = this.place(source);
    const made =
      this.#create === true
        ? createIndexes(collection, [documentIndex]).then(() => true)
        : indexFaults(collection, [documentIndex]).then((faults) => faults.length === 0);
    // Without it, planning only takes longer; the next full pass tries again.
    void made.then(
      (has) => this.#byDocument.set(name, has),
      () => undefined,
    );
    return false;
  }

  async #inspect(source: Source): Promise<{ readonly kind: string | undefined; readonly options: Document }> {
    const [info] = (await this.db(source.database)
      .listCollections({ name: source.collection }, BSON_OPTIONS)
      .toArray()) as Document[];
    const options = (info?.['options'] ?? {}) as Document;
    if (info !== undefined) {
      const collation = (options['collation'] as Document | undefined) ?? null;
      this.#collations.set(nameOfSource(source), collation);
      if (collation !== null) this.#indexExactIds(source);
    }
    return { kind: info?.['type'] as string | undefined, options };
  }

  /** Without it, planning only takes longer; the doctor reports if it is missing. Nothing waits until it is built. */
  #indexExactIds(source: Source): void {
    if (this.#create !== true) return;
    void createIndexes(this.place(source).source, [exactIdIndex]).catch(() => undefined);
  }

  /** Refuses sources that cannot be watched. Creates the indexes of their tasks, or checks them, by `createIndexes`. */
  async prepare(where: string, plan: TaskPlan): Promise<void> {
    const { collection } = plan.source;
    const { kind, options } = await this.#inspect(plan.source);
    if (kind === 'view' || kind === 'timeseries')
      throw new OptionError(`${where}: ${show(collection)} is a ${kind}, whose changes cannot be watched.`);
    if (options['capped'] === true)
      throw new OptionError(
        `${where}: ${show(collection)} is a capped collection, which does not report the documents that it drops; use an ordinary one.`,
      );
    await this.#prepareTasks(where, plan.source);
  }

  /** Creates the indexes of a task collection, if the store may create indexes; a collection may be dropped by hand. */
  async mend({ tasks }: Pick<Place, 'tasks'>): Promise<void> {
    if (this.#create === true) await createIndexes(tasks, taskIndexes);
  }

  async #prepareTasks(where: string, source: Source): Promise<void> {
    const { tasks } = this.place(source);
    // The application may use this name: its documents must not be taken for tasks.
    const ends = await Promise.all(
      ([1, -1] as const).map((order) => tasks.findOne({}, { sort: { _id: order }, projection: { task: 1 } })),
    );
    if (ends.some((row) => row !== null && typeof row['task'] !== 'string')) {
      throw new OptionError(
        `${where}: ${show(tasks.collectionName)} contains documents that are not tasks. Name another collection: ` +
          'mongodb({ collections: { tasks: (collection) => `${collection}_work` } }).',
      );
    }
    if (this.#create === true) await this.mend({ tasks });
    else if (!this.#create) {
      const faults = await indexFaults(tasks, taskIndexes);
      if (faults.length > 0) throw missingIndexError(faults);
    }
  }
}
