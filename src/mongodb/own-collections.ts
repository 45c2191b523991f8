import type { Collection } from 'mongodb';
import type { Mongo } from './context.js';
import { auditIndexes, globalsIndexes, jobIndexes, metricsIndexes, type IndexPlan } from './indexes.js';

/** One of the store's own collections, with the indexes that it needs. */
export type Owned = readonly [collection: Collection, indexes: readonly IndexPlan[]];

/** Every collection that the store creates in its own database. Task collections are beside their sources. */
export const ownCollections = ({ jobs, globals, metrics, audit, sharded }: Mongo): readonly Owned[] => [
  [jobs as unknown as Collection, jobIndexes(sharded)],
  [globals as unknown as Collection, globalsIndexes],
  [metrics as unknown as Collection, metricsIndexes],
  [audit as unknown as Collection, auditIndexes],
];
