/** Fetches the document of a task, if it is still the one that the task was planned for. */
import type { AggregateOptions, ClientSession, Document } from 'mongodb';
import { LeaseLostError, OptionError, StoreError } from '../../../core/errors.js';
import { Batcher } from '../../../core/batches/batcher.js';
import { checkKeys, checkOneOf } from '../../../core/options.js';
import { MONGODB_READS_BY, type Fetched, type FetchRequest, type TaskPlan } from '../../../store/reactive.js';
import { literal, run } from '../../context.js';
import { RUNNING } from '../claim.js';
import { findExact } from '../../exact.js';
import { textOf, type TaskKey } from '../document.js';
import { queryOf } from '../plan/filter.js';
import type { Place, MongodbSources } from '../sources.js';

const DOCUMENT = '__tidemill';
const SENT = ['maxTimeMS', 'comment', 'readConcern', 'allowDiskUse', 'batchSize', ...MONGODB_READS_BY];
/** Options of `find` that make no difference for one document found by its id. */
const POINTLESS = ['sort', 'limit', 'hint', 'singleBatch', 'noCursorTimeout'];
const KNOWN = ['projection', 'session', ...SENT, ...POINTLESS];
/** Without `available`: on a sharded cluster, it may miss a document that exists. */
const LEVELS = ['local', 'majority', 'linearizable', 'snapshot'] as const;

function check(task: string, options: Readonly<Record<string, unknown>>): void {
  const where = `getDocument of ${task}`;
  if (options['readPreference'] !== undefined) {
    throw new OptionError(
      `${where}: readPreference is not an option. The document is read from the primary, since a secondary may not ` +
        'have seen the claim yet; leave it out.',
    );
  }
  checkKeys(where, options, KNOWN);
  const { readConcern: concern } = options;
  if (concern === undefined) return;
  const named = typeof concern === 'object' && concern !== null && 'level' in concern;
  checkOneOf(where, 'readConcern', named ? concern.level : concern, LEVELS);
}

/** Keeps documents whose watched fields equal the task's snapshot; for the lookup's own pipeline. */
function unchanged({ watchProjection }: TaskPlan): Document[] {
  if (watchProjection === undefined) return [{ $match: { $expr: { $eq: ['$$ROOT', '$$snapshot'] } } }];
  return [
    // In one stage with the projection, as in planning: what it computes from `$$ROOT` must not see the copy.
    { $project: { ...(watchProjection as Document), [DOCUMENT]: '$$ROOT' } },
    {
      $match: {
        $expr: { $eq: [{ $unsetField: { field: DOCUMENT, input: '$$ROOT' } }, '$$snapshot'] },
      },
    },
    { $replaceWith: `$${DOCUMENT}` },
  ];
}

/** The snapshot never leaves the server: a client would send it back with another order or other number types. */
function fetchPipeline(
  place: Place,
  plan: TaskPlan,
  keys: readonly TaskKey[],
  token: string | null,
  projection: Document | undefined,
  query: Document,
): Document[] {
  return [
    { $match: { _id: { $in: keys }, leaseToken: token, status: { $in: RUNNING } } },
    {
      $lookup: {
        from: place.source.collectionName,
        localField: 'sourceDocId',
        foreignField: '_id',
        let: { snapshot: '$lastObservedValues' },
        pipeline: [
          { $match: query },
          ...unchanged(plan),
          ...(projection === undefined || Object.keys(projection).length === 0
            ? []
            : [{ $project: projection }]),
        ],
        as: 'documents',
      },
    },
    {
      $project: {
        _id: 0,
        at: { $indexOfArray: [literal(keys), '$_id'] },
        document: { $cond: ['$overtaken', '$$REMOVE', { $first: '$documents' }] },
      },
    },
  ];
}

/** Users' documents are read as the driver reads them by default. */
const PROMOTED = { promoteLongs: true, promoteBuffers: false } as const;

/** Undefined: the task was not found under its token, so nothing is known about its document. */
type Read = Fetched | undefined;

/** Fetches documents for handlers. Fetches with the same task, claim and options share queries. */
export class MongodbFetcher {
  readonly #sources: () => MongodbSources;
  readonly #gathering = new Batcher<FetchRequest<ClientSession>, Read>({
    ask: (requests) => run('fetch a document', () => this.#read(requests)),
    // A filter that fails on one document must not fail the fetches of others.
    isOwn: (error) => !(error instanceof StoreError && error.transient),
  });

  constructor(sources: () => MongodbSources) {
    this.#sources = sources;
  }

  async fetch(request: FetchRequest<ClientSession>): Promise<Fetched> {
    const { plan, lease, options, transaction } = request;
    check(plan.task, options);
    const fetched =
      transaction === undefined
        ? await this.#gathering.ask(textOf([plan.task, lease.token, options]), request)
        : (await this.#read([request], transaction))[0];
    if (fetched !== undefined) return fetched;
    throw new LeaseLostError(`This attempt no longer holds the task "${plan.task}".`);
  }

  async #read(
    requests: readonly FetchRequest<ClientSession>[],
    session?: ClientSession,
  ): Promise<readonly Read[]> {
    const [{ plan, lease, options }] = requests as [FetchRequest<ClientSession>];
    const { projection } = options as { projection?: Document };
    const given = Object.fromEntries(Object.entries(options).filter(([name]) => SENT.includes(name)));
    const place = await this.#sources().open(plan.source);
    const keys = requests.map((request) => request.lease.key as TaskKey);
    const settings: AggregateOptions = {
      ...PROMOTED,
      ...given,
      ...(session === undefined ? {} : { session }),
    };
    const allowed = await this.#collated(place, plan, keys, settings);
    const query = place.collation === undefined ? queryOf(plan) : {};
    const rows = await place.tasks
      .aggregate(fetchPipeline(place, plan, keys, lease.token, projection, query), settings)
      .toArray();
    // By position: with longs read as numbers, an id need not equal the requested one.
    const byPosition = new Map(rows.map((row) => [Number(row['at']), row['document'] as unknown]));
    return keys.map((key, at) => {
      if (!byPosition.has(at)) return undefined;
      const document = byPosition.get(at);
      return document === undefined || !allowed(key) ? { missing: true } : { document };
    });
  }

  /**
   * If the source has a collation, the filter is evaluated separately: the comparison of snapshots must not follow it.
   */
  async #collated(
    place: Place,
    plan: TaskPlan,
    keys: readonly TaskKey[],
    settings: AggregateOptions,
  ): Promise<(key: TaskKey) => boolean> {
    if (place.collation === undefined || plan.filter === undefined) return () => true;
    const query = { $and: [{ _id: { $in: keys.map(({ id }) => id as never) } }, queryOf(plan)] };
    const options = { ...settings, projection: { _id: 1 }, collation: place.collation as never };
    const rows = await findExact(place.source, query, options).toArray();
    const matching = new Set(rows.map((row) => textOf(row['_id'])));
    return ({ id }) => matching.has(textOf(id));
  }
}
