/** Fetches the document of a task, if it is still the one that the task was planned for. */
import type { AggregateOptions, ClientSession, Document } from 'mongodb';
import { OptionError, StoreError } from '../../../core/errors.js';
import { checkKeys, checkOneOf } from '../../../core/options.js';
import { Fetcher, type Read } from '../../../store/helpers/fetcher.js';
import { MONGODB_READS_BY, type FetchRequest, type TaskPlan } from '../../../store/reactive/reactive.js';
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
export function fetchPipeline(
  place: Place,
  plan: TaskPlan,
  keys: readonly TaskKey[],
  tokens: readonly (string | null)[],
  projection: Document | undefined,
  query: Document,
): Document[] {
  return [
    { $match: { _id: { $in: keys }, leaseToken: { $in: [...new Set(tokens)] }, status: { $in: RUNNING } } },
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
        token: '$leaseToken',
        document: { $cond: ['$overtaken', '$$REMOVE', { $first: '$documents' }] },
      },
    },
  ];
}

/** Users' documents are read as the driver reads them by default. */
const PROMOTED = { promoteLongs: true, promoteBuffers: false } as const;

/** Fetches documents for handlers. */
export const mongodbFetcher = (sources: () => MongodbSources): Fetcher<ClientSession> =>
  new Fetcher({
    check: ({ plan, options }) => check(plan.task, options),
    textOf,
    read: (requests, session) =>
      session === undefined
        ? run('fetch a document', () => read(sources(), requests))
        : read(sources(), requests, session),
    // A filter that fails on one document must not fail the fetches of others.
    isOwn: (error) => !(error instanceof StoreError && error.transient),
  });

async function read(
  sources: MongodbSources,
  requests: readonly FetchRequest<ClientSession>[],
  session?: ClientSession,
): Promise<readonly Read[]> {
  const [{ plan, options }] = requests as [FetchRequest<ClientSession>];
  const { projection } = options as { projection?: Document };
  const given = Object.fromEntries(Object.entries(options).filter(([name]) => SENT.includes(name)));
  const place = await sources.open(plan.source);
  const keys = requests.map((request) => request.lease.key as TaskKey);
  const tokens = requests.map(({ lease }) => lease.token);
  const settings: AggregateOptions = {
    ...PROMOTED,
    ...given,
    ...(session === undefined ? {} : { session }),
  };
  const allowed = await collated(place, plan, keys, settings);
  const query = place.collation === undefined ? queryOf(plan) : {};
  const rows = await place.tasks
    .aggregate(fetchPipeline(place, plan, keys, tokens, projection, query), settings)
    .toArray();
  // By position: with longs read as numbers, an id need not equal the requested one.
  const held = rows.filter((row) => row['token'] === tokens[Number(row['at'])]);
  const byPosition = new Map(held.map((row) => [Number(row['at']), row['document'] as unknown]));
  return keys.map((key, at) => {
    if (!byPosition.has(at)) return undefined;
    const document = byPosition.get(at);
    return document === undefined || !allowed(key) ? { missing: true } : { document };
  });
}

/**
 * If the source has a collation, the filter is evaluated separately: the comparison of snapshots must not follow it.
 */
async function collated(
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
