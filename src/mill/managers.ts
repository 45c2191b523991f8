/** What reads and manages, one room each. A process that only enqueues does not load it. */
export { Audit } from './insight/audit.js';
export { Limits } from './limits/manager.js';
export { Jobs, watchTarget } from '../jobs/manage/manager.js';
export { Results } from '../jobs/results.js';
export { Schedules } from '../jobs/manage/schedules.js';
export { Metrics } from '../metrics/series.js';
export { Tasks } from '../reactive/manage/manager.js';
