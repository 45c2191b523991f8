import { MongoClient } from 'mongodb';

/** For connections that do not answer any more: the driver waits for ever by default. */
const LIMITS = {
  /** Longer than the awaited `getMore` of a change stream, which takes ten seconds. */
  socketTimeoutMS: 30_000,
  /** Shorter than that: when a connection was given up, those that froze beside it are too old for the retry. */
  maxIdleTimeMS: 20_000,
  /** Also of the driver's monitoring, which gives up all connections to a server that is gone. */
  connectTimeoutMS: 10_000,
} as const;

const names = (uri: string, option: string): boolean => new RegExp(`[?&]${option}=`, 'iu').test(uri);

/** What the uri says comes first. */
const limitsOf = (uri: string): Partial<typeof LIMITS> =>
  Object.fromEntries(Object.entries(LIMITS).filter(([option]) => !names(uri, option)));

export const ownClient = (uri: string): MongoClient =>
  new MongoClient(uri, { appName: 'tidemill', ...limitsOf(uri) });
