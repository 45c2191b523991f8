import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { adminCommand } from './admin.js';
import { findMongo } from './binaries.js';
import { ServerError } from './errors.js';
import { inFreshFolder, removeFolder } from './folders.js';
import { MongodMember, type Member } from './member.js';
import { mongodArgs, type MongodOptions } from './mongod-args.js';
import { freePort } from './ports.js';
import { ReplicaSet } from './replica-set.js';
import { stoppable, type Stoppable } from './stoppable.js';

export interface MongoOptions extends MongodOptions {
  /** One is enough for change streams and transactions; failover needs three. @default 1 */
  readonly nodes?: 1 | 3;
  /** How long the others wait for a silent primary before they elect another. @default 1000 */
  readonly electionTimeoutMs?: number;
  /** Where to keep data after `stop()`, in one folder per node. @default a temporary folder, removed by `stop()` */
  readonly dbPath?: string;
  /** A mongod outside any replica set: no change streams, no transactions. @default false */
  readonly standalone?: boolean;
  /**
   * Requires users to sign in; `uri` has one who may do everything. Not for a standalone or a `dbPath`.
   * @default false
   */
  readonly auth?: boolean;
}

export interface MongoServer extends Stoppable {
  /** Without a database name. */
  readonly uri: string;
  /** Empty for a server given by MONGODB_URI, which is not ours to kill. */
  readonly members: readonly Member[];
  /** The member that accepts writes now; waits while there is none. */
  primary(): Promise<Member>;
}

/** Starts a MongoDB, or uses the one that MONGODB_URI names. Resolves when it accepts writes. */
export async function startMongo(options: MongoOptions = {}): Promise<MongoServer> {
  const given = process.env['MONGODB_URI'];
  if (given && fitsGivenServer(options)) return givenServer(given);
  if (options.standalone && options.nodes === 3) {
    throw new ServerError('A standalone MongoDB has one node.', { fix: 'leave out `nodes` or `standalone`' });
  }
  if (options.auth && (options.standalone || options.dbPath !== undefined)) {
    throw new ServerError('Authorization is for a new replica set.', {
      fix: 'leave out `standalone` and `dbPath`, or `auth`',
    });
  }
  return inFreshFolder((folder) => (options.standalone ? standalone(options, folder) : set(options, folder)));
}

/** A caller that asks for a topology, a setting or a folder would not notice that the given server has another. */
function fitsGivenServer({ nodes = 1, standalone, failPoints, auth, ...settings }: MongoOptions): boolean {
  const { oplogMb, transactionSeconds, dbPath } = settings;
  const asked = [oplogMb, transactionSeconds, dbPath].some((setting) => setting !== undefined);
  return nodes === 1 && !standalone && !failPoints && !auth && !asked;
}

function givenServer(uri: string): MongoServer {
  const notOurs = new ServerError('The server was given by MONGODB_URI, so its members are not known.', {
    fix: 'unset MONGODB_URI for tests that kill members',
  });
  return stoppable({ uri, members: [], primary: () => Promise.reject(notOurs) }, () => Promise.resolve());
}

async function set(options: MongoOptions, folder: string): Promise<MongoServer> {
  const { nodes = 1, electionTimeoutMs = 1_000, dbPath, auth = false } = options;
  const { mongod } = await findMongo(['mongod']);
  const rs = await ReplicaSet.start({
    name: 'rs0',
    nodes,
    binary: mongod,
    dataFolder: dbPath ?? folder,
    logFolder: folder,
    args: [...mongodArgs(options), ...(auth ? ['--keyFile', await makeKeyFile(folder)] : [])],
    electionTimeoutMs,
  });
  const user = auth ? await makeRoot((await rs.primary()).port) : '';
  const uri = `mongodb://${user}${rs.addresses}/?replicaSet=rs0${nodes === 1 ? '&directConnection=false' : ''}`;
  return stoppable({ uri, members: rs.members, primary: () => rs.primary() }, async () => {
    await rs.end(endSignal(options));
    await removeFolder(folder);
  });
}

/** With a key file, members sign in to each other, and all clients have to. */
async function makeKeyFile(folder: string): Promise<string> {
  const file = join(folder, 'key');
  await writeFile(file, randomBytes(96).toString('base64'), { mode: 0o600 });
  return file;
}

/** The first user can be created without signing in, from the same machine. Returns its part of a URI. */
async function makeRoot(port: number): Promise<string> {
  const pwd = randomBytes(12).toString('hex');
  await adminCommand(port, { createUser: 'root', pwd, roles: ['root'] });
  return `root:${pwd}@`;
}

async function standalone(options: MongoOptions, folder: string): Promise<MongoServer> {
  const { mongod } = await findMongo(['mongod']);
  const member = new MongodMember({
    name: 'standalone mongod',
    binary: mongod,
    port: await freePort(),
    dataFolder: options.dbPath ?? join(folder, 'data'),
    logFile: join(folder, 'mongod.log'),
    args: mongodArgs(options),
    alone: true,
  });
  await member.start();
  const uri = `mongodb://${member.address}/?directConnection=true`;
  return stoppable({ uri, members: [member], primary: () => Promise.resolve(member) }, async () => {
    await member.end(endSignal(options));
    await removeFolder(folder);
  });
}

/** Data that is thrown away needs no orderly shutdown. */
function endSignal({ dbPath }: MongoOptions): NodeJS.Signals {
  return dbPath === undefined ? 'SIGKILL' : 'SIGTERM';
}
