export interface MongodOptions {
  /** Upper bound of the WiredTiger cache of each mongod. @default 1 */
  readonly cacheGb?: number;
  /** Size of the oplog. Small ones let tests overrun a change stream. @default 512 */
  readonly oplogMb?: number;
  /**
   * How long a transaction may stay open. The server checks only twice in that time, so what a killed process held in
   * a transaction may stay locked half as long again. @default 60
   */
  readonly transactionSeconds?: number;
  /** Allows `configureFailPoint`, which makes the server fail on purpose. @default false */
  readonly failPoints?: boolean;
}

/** The arguments of every mongod here, besides its port, folder and role. */
export function mongodArgs(options: MongodOptions): string[] {
  const { cacheGb = 1, oplogMb = 512, transactionSeconds = 60, failPoints = false } = options;
  return [
    ...['--bind_ip', '127.0.0.1'],
    // A killed mongod would leave its socket file in the system's temporary folder.
    '--nounixsocket',
    ...['--wiredTigerCacheSizeGB', `${cacheGb}`],
    ...['--oplogSize', `${oplogMb}`],
    // Each test has a database of its own, and WiredTiger keeps the file of every collection and index open for ten
    // minutes: a long run of tests ended the server at the system's limit of open files.
    '--wiredTigerEngineConfigString',
    'file_manager=(close_idle_time=60,close_scan_interval=10,close_handle_minimum=500)',
    // The oplog keeps what no checkpoint covers yet; by default there is one checkpoint a minute.
    ...(oplogMb < 64 ? ['--syncdelay', '1'] : []),
    ...['--setParameter', `transactionLifetimeLimitSeconds=${transactionSeconds}`],
    ...(failPoints ? ['--setParameter', 'enableTestCommands=1'] : []),
    ...['--setParameter', 'diagnosticDataCollectionEnabled=false'],
    // By default a member waits 15 s after SIGTERM, so that clients of a real deployment can move on.
    ...['--setParameter', 'shutdownTimeoutMillisForSignaledShutdown=100'],
  ];
}
