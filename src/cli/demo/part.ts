import type { Part, PartOptions, Role } from './crew.js';
import { produce } from './producer.js';
import { work } from './worker.js';

/** Resolves once the worker or producer has started. */
export const startPart = (role: Role, options: PartOptions): Promise<Part> =>
  role === 'worker' ? work(options) : produce(options);
