/** `MongoCron` of mongodb-cron 1.9, on the document scheduler and the MongoDB store of this package. */
export { MongoCron } from './mongo-cron.js';
export type { Cron, CronCollection, MongoCronCfg, SaferWays } from './config.js';
