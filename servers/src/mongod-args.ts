export interface MongodOptions {
  /** Upper bound of the WiredTiger cache of each mongod. @default 1 */
  readonly cacheGb?: number;
  /** Size of the oplog. Small ones let tests overrun a change stream. @default 512 */
  readonly oplogMb?: number;
  /**
   * How long a transaction may stay open. The server notices half as much later: only then is what a killed process
   * held in one free again. @default 60
   */
  readonly transactionSeconds?: number;
  /** Lets `configureFailPoint` make the server fail on purpose. @default false */
  readonly failPoints?: boolean;
}

/** What every mongod here is started with, besides its port, folder and role. */
export function mongodArgs(options: MongodOptions): string[] {
  const { cacheGb = 1, oplogMb = 512, transactionSeconds = 60, failPoints = false } = options;
  return [
    ...['--bind_ip', '127.0.0.1'],
    // A killed mongod would leave its socket file in the system's temporary folder.
    '--nounixsocket',
    ...['--wiredTigerCacheSizeGB', `${cacheGb}`],
    ...['--oplogSize', `${oplogMb}`],
    // What no checkpoint covers is never cut off an oplog; by default there is one a minute.
    ...(oplogMb < 64 ? ['--syncdelay', '1'] : []),
    ...['--setParameter', `transactionLifetimeLimitSeconds=${transactionSeconds}`],
    ...(failPoints ? ['--setParameter', 'enableTestCommands=1'] : []),
    ...['--setParameter', 'diagnosticDataCollectionEnabled=false'],
    // By default a member lingers for 15 s after SIGTERM, to let clients of a real deployment move on.
    ...['--setParameter', 'shutdownTimeoutMillisForSignaledShutdown=100'],
  ];
}
