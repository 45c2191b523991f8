/** The document of a task, if it is still the one that the task was planned for. */
import type { AggregateOptions, ClientSession, Document } from 'mongodb';
import { StoreError } from '../../core/errors.js';
import { checkKeys } from '../../core/options.js';
import type { Fetched, FetchRequest, TaskPlan } from '../../store/reactive.js';
import { literal, run } from '../context.js';
import { RUNNING } from './claim.js';
import { textOf, type TaskKey } from './document.js';
import { queryOf } from './filter.js';
import type { Place, Sources } from './sources.js';

const DOCUMENT = '__tidemill';
const KNOWN = ['projection', 'session', 'maxTimeMS', 'comment', 'readConcern', 'readPreference'];

/** Documents whose watched fields are what the task's snapshot says, in the lookup's own pipeline. */
function unchanged({ watchProjection }: TaskPlan): Document[] {
  if (watchProjection === undefined) return [{ $match: { $expr: { $eq: ['$$ROOT', '$$snapshot'] } } }];
  return [
    // In one stage with the projection, as when it was planned: what it computes of `$$ROOT` must not see a copy.
    { $project: { ...(watchProjection as Document), [DOCUMENT]: '$$ROOT' } },
    {
      $match: {
        $expr: { $eq: [{ $unsetField: { field: DOCUMENT, input: '$$ROOT' } }, '$$snapshot'] },
      },
    },
    { $replaceWith: `$${DOCUMENT}` },
  ];
}

/** The snapshot never leaves the server: what a client sends back may differ in order and number types. */
function fetchPipeline(
  place: Place,
  plan: TaskPlan,
  keys: readonly TaskKey[],
  token: string | null,
  projection: Document | undefined,
  query: Document,
): Document[] {
  return [
    { $match: { _id: { $in: keys }, leaseToken: token, status: { $in: RUNNING }, overtaken: { $ne: true } } },
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
        document: { $first: '$documents' },
      },
    },
  ];
}

/** Users' documents come as the driver reads them by default. */
const PROMOTED = { promoteLongs: true, promoteBuffers: false } as const;

interface Waiting {
  readonly request: FetchRequest<ClientSession>;
  readonly resolve: (fetched: Fetched) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Fetches of one task, claim and projection share queries: those of the same moment, and those that come while a query is
 * under way, which go with the next.
 */
export class Fetcher {
  readonly #sources: () => Sources;
  /** What goes with the next query; there is an entry for as long as one is under way. */
  readonly #gathering = new Map<string, Waiting[]>();

  constructor(sources: () => Sources) {
    this.#sources = sources;
  }

  async fetch(request: FetchRequest<ClientSession>): Promise<Fetched> {
    const { plan, lease, options } = request;
    checkKeys(`getDocument of ${plan.task}`, options, KNOWN);
    if (request.transaction !== undefined) {
      const [fetched] = await this.#read([request], request.transaction);
      return fetched as Fetched;
    }
    const key = textOf([plan.task, lease.token, options]);
    return new Promise((resolve, reject) => {
      const one: Waiting = { request, resolve, reject };
      const gathering = this.#gathering.get(key);
      if (gathering !== undefined) gathering.push(one);
      else {
        this.#gathering.set(key, [one]);
        void this.#serveAll(key);
      }
    });
  }

  async #serveAll(key: string): Promise<void> {
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve));
      const waiting = this.#gathering.get(key) ?? [];
      if (waiting.length === 0) break;
      this.#gathering.set(key, []);
      await this.#serve(waiting);
    }
    this.#gathering.delete(key);
  }

  async #serve(waiting: readonly Waiting[]): Promise<void> {
    try {
      const fetched = await run('fetch a document', () => this.#read(waiting.map(({ request }) => request)));
      for (const [index, { resolve }] of waiting.entries()) resolve(fetched[index] as Fetched);
    } catch (error) {
      const shared = waiting.length > 1 && !(error instanceof StoreError && error.transient);
      // A filter that errors on one document is no matter of the others.
      if (shared) await Promise.all(waiting.map((one) => this.#serve([one])));
      else for (const { reject } of waiting) reject(error);
    }
  }

  async #read(
    requests: readonly FetchRequest<ClientSession>[],
    session?: ClientSession,
  ): Promise<readonly Fetched[]> {
    const [{ plan, lease, options }] = requests as [FetchRequest<ClientSession>];
    const {
      projection,
      session: _session,
      ...given
    } = options as AggregateOptions & { projection?: Document };
    const place = await this.#sources().open(plan.source);
    const keys = requests.map((request) => request.lease.key as TaskKey);
    const settings = { ...given, ...PROMOTED, ...(session === undefined ? {} : { session }) };
    const allowed = await this.#collated(place, plan, keys, session);
    const query = place.collation === undefined ? queryOf(plan) : {};
    const rows = await place.tasks
      .aggregate(fetchPipeline(place, plan, keys, lease.token, projection, query), settings)
      .toArray();
    // By position: read with longs as numbers, an id need not look like the one that it was asked by.
    const byPosition = new Map(rows.map((row) => [row['at'] as number, row['document'] as unknown]));
    return keys.map((key, at) => {
      const document = byPosition.get(at);
      return document === undefined || !allowed(key) ? { missing: true } : { document };
    });
  }

  /** Under a collation of its own the filter is asked apart: the comparison of snapshots must not follow it. */
  async #collated(
    place: Place,
    plan: TaskPlan,
    keys: readonly TaskKey[],
    session?: ClientSession,
  ): Promise<(key: TaskKey) => boolean> {
    if (place.collation === undefined || plan.filter === undefined) return () => true;
    const rows = await place.source
      .find(
        { $and: [{ _id: { $in: keys.map(({ id }) => id as never) } }, queryOf(plan)] },
        {
          projection: { _id: 1 },
          collation: place.collation as never,
          ...(session === undefined ? {} : { session }),
        },
      )
      .toArray();
    const matching = new Set(rows.map((row) => textOf(row._id)));
    return ({ id }) => matching.has(textOf(id));
  }
}
