import { MongoClient } from 'mongodb';

/** Timeouts for connections that stop responding; by default, the driver waits forever. */
const LIMITS = {
  /** Longer than the awaited `getMore` of a change stream, which takes ten seconds. */
  socketTimeoutMS: 30_000,
  /**
   * Shorter than `socketTimeoutMS`: when one connection times out, others that froze with it are too old for the retry.
   */
  maxIdleTimeMS: 20_000,
  /** Also limits the driver's monitoring, which drops all connections to a server that is gone. */
  connectTimeoutMS: 10_000,
} as const;

const names = (uri: string, option: string): boolean => new RegExp(`[?&]${option}=`, 'iu').test(uri);

/** Leaves out the limits that the uri sets. */
const limitsOf = (uri: string): Partial<typeof LIMITS> =>
  Object.fromEntries(Object.entries(LIMITS).filter(([option]) => !names(uri, option)));

export const ownClient = (uri: string): MongoClient =>
  new MongoClient(uri, { appName: 'tidemill', ...limitsOf(uri) });
