import type { Store } from 'tidemill';
import type { Role, Tell } from './crew.js';
import { produce } from './producer.js';
import { work } from './worker.js';

/** What a worker or a producer needs, whichever process it lives in. */
export interface PartOptions {
  readonly name: string;
  readonly store: Store;
  readonly tell: Tell;
}

/** A worker or a producer that has begun. */
export interface Part {
  stop(timeout: '0s' | '4s'): Promise<void>;
}

/** Resolves when it has begun. */
export const startPart = (role: Role, options: PartOptions): Promise<Part> =>
  role === 'worker' ? work(options) : produce(options);
