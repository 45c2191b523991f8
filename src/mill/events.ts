import type { JobEvents } from '../jobs/events.js';
import type { TaskEvents } from '../reactive/events.js';

/** All events of a mill. Each carries one object, with the id of the instance that emits it. */
export interface MillEvents extends JobEvents, TaskEvents {}
