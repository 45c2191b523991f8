export { startMongo, type MongoOptions, type MongoServer } from './mongo.js';
export type { Member } from './member.js';
export { startShardedMongo, type ShardedMongoOptions, type ShardedMongoServer } from './sharded.js';
export { startPostgres, type PostgresOptions, type PostgresServer } from './postgres.js';
export { startChromium, type Browser, type BrowserContext, type Page } from './chromium.js';
export { ServerError } from './errors.js';
export type { Stoppable } from './stoppable.js';
