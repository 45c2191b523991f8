/** What reads and manages, one room each. A process that only enqueues does not load it. */
export { Audit } from './audit.js';
export { Limits } from './limits.js';
export { Jobs, watchTarget } from '../jobs/manager.js';
export { Results } from '../jobs/results.js';
export { Schedules } from '../jobs/schedules.js';
export { Metrics } from '../metrics/series.js';
export { Tasks } from '../reactive/manage/manager.js';
