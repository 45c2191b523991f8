import { join } from 'node:path';
import { adminCommand } from './admin.js';
import { findMongo, type Binary } from './binaries.js';
import { inFreshFolder, removeFolder } from './folders.js';
import { mongoReady } from './member.js';
import { mongodArgs, type MongodOptions } from './mongod-args.js';
import { freePort } from './ports.js';
import { ServerProcess } from './process.js';
import { ReplicaSet } from './replica-set.js';
import { stoppable, type Stoppable } from './stoppable.js';
import { allEnded } from './until.js';

export interface ShardedMongoOptions extends MongodOptions {
  /** Each is a replica set of one node. @default 2 */
  readonly shards?: number;
}

export interface ShardedMongoServer extends Stoppable {
  /** The URI of the mongos, without a database name. */
  readonly uri: string;
}

/** Starts a sharded cluster: a config server, the shards, and one mongos in front of them. */
export async function startShardedMongo(options: ShardedMongoOptions = {}): Promise<ShardedMongoServer> {
  const { mongod, mongos } = await findMongo(['mongod', 'mongos']);
  return inFreshFolder(async (folder) => {
    const sets: ReplicaSet[] = [];
    const end = (): Promise<unknown> => allEnded(sets.map((set) => set.end('SIGKILL')));
    try {
      sets.push(...(await startSets(options, mongod, folder)));
      const router = await startRouter(mongos, sets, folder);
      return stoppable({ uri: `mongodb://127.0.0.1:${router.port}/` }, async () => {
        await router.process.end();
        await end();
        await removeFolder(folder);
      });
    } catch (error) {
      await end();
      throw error;
    }
  });
}

/** Starts the config server's set and those of the shards. The config server's comes first. */
async function startSets(
  options: ShardedMongoOptions,
  binary: Binary,
  folder: string,
): Promise<ReplicaSet[]> {
  const { shards = 2 } = options;
  const names = ['config', ...Array.from({ length: shards }, (_, index) => `shard${index}`)];
  const starts = names.map((name, index) => {
    const configServer = index === 0;
    // A change stream waits for the quietest shard. By default an idle shard reports its position only every ten
    // seconds.
    const quiet = ['--setParameter', 'periodicNoopIntervalSecs=1'];
    const args = [configServer ? '--configsvr' : '--shardsvr', ...mongodArgs(options), ...quiet];
    const common = { name, nodes: 1, binary, args, configServer, electionTimeoutMs: 1_000 };
    return ReplicaSet.start({ ...common, dataFolder: folder, logFolder: folder });
  });
  return startedOrNone(starts);
}

/** If one set fails, ends the ones that did start, since no caller knows of them yet. */
async function startedOrNone(starts: readonly Promise<ReplicaSet>[]): Promise<ReplicaSet[]> {
  try {
    return await allEnded(starts);
  } catch (error) {
    for (const start of starts) await start.then((set) => set.end('SIGKILL')).catch(() => undefined);
    throw error;
  }
}

async function startRouter(
  { command, env }: Binary,
  [config, ...shards]: readonly ReplicaSet[],
  folder: string,
): Promise<{ port: number; process: ServerProcess }> {
  const port = await freePort();
  const configdb = `${config?.name}/${config?.addresses}`;
  const process = await ServerProcess.launch({
    name: `mongos on port ${port}`,
    command,
    env,
    args: ['--port', `${port}`, '--configdb', configdb, '--bind_ip', '127.0.0.1', '--nounixsocket'],
    cwd: folder,
    logFile: join(folder, 'mongos.log'),
    ready: mongoReady,
  });
  try {
    // One after the other: the config server takes a lock for each.
    for (const shard of shards) await adminCommand(port, { addShard: `${shard.name}/${shard.addresses}` });
  } catch (error) {
    await process.end();
    throw error;
  }
  return { port, process };
}
