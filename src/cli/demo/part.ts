import type { Part, PartOptions, Role } from './crew.js';
import { produce } from './producer.js';
import { work } from './worker.js';

/** Resolves when it has begun. */
export const startPart = (role: Role, options: PartOptions): Promise<Part> =>
  role === 'worker' ? work(options) : produce(options);
