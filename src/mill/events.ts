import type { JobEvents } from '../jobs/events.js';
import type { TaskEvents } from '../reactive/events.js';

/** Everything that a mill tells. Each event carries one object, with the instance that saw it. */
export interface MillEvents extends JobEvents, TaskEvents {}
