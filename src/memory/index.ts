/** The memory store: for unit tests, optionally on a virtual clock, and for work that may be lost with the process. */
import { checkInteger, checkKeys } from '../core/options.js';
import { MemoryStore, type MemoryOptions } from './store.js';

/** Creates a store in this process's memory. */
export function memory(options: MemoryOptions = {}): MemoryStore {
  checkKeys('memory()', options, ['clock', 'maxPayloadBytes']);
  const { maxPayloadBytes } = options;
  if (maxPayloadBytes !== undefined)
    checkInteger('memory()', 'maxPayloadBytes', maxPayloadBytes, 1, Number.MAX_SAFE_INTEGER);
  return new MemoryStore(options);
}

export { MemoryStore, type MemoryOptions };
export { MemoryTransaction } from './transaction.js';
export {
  MemoryCollection,
  type MemoryChanges,
  type MemoryCollectionOptions,
  type MemoryDocument,
  type MemoryWriteOptions,
  type Stored,
} from './collection.js';
