import { join } from 'node:path';
import { MongoServerError, type Document } from 'mongodb';
import { adminCommand, hello } from './admin.js';
import type { Binary } from './binaries.js';
import { MongodMember } from './member.js';
import { freePorts } from './ports.js';
import { allEnded, until } from './until.js';

export interface ReplicaSetSpec {
  readonly name: string;
  readonly nodes: number;
  readonly binary: Binary;
  readonly dataFolder: string;
  readonly logFolder: string;
  readonly args: readonly string[];
  readonly electionTimeoutMs: number;
  /** Config servers are marked in the configuration of their set as well. */
  readonly configServer?: boolean;
}

/** MongoDB's code for a data folder that already belongs to a set. */
const alreadyInitialized = 23;

/**
 * The mongods of one set: starts them together, initiates the set, waits until it accepts writes, and ends them
 * together.
 */
export class ReplicaSet {
  readonly name: string;
  readonly members: readonly MongodMember[];

  private constructor(name: string, members: readonly MongodMember[]) {
    this.name = name;
    this.members = members;
  }

  static async start(spec: ReplicaSetSpec): Promise<ReplicaSet> {
    const ports = await freePorts(spec.nodes);
    const set = new ReplicaSet(
      spec.name,
      ports.map((port, index) => memberOf(spec, port, index)),
    );
    try {
      await allEnded(set.members.map((member) => member.start()));
      await initiate(ports[0] as number, set.#configuration(spec));
      await allEnded(set.members.map((member) => member.takesPart()));
      await set.primary();
    } catch (error) {
      await set.end('SIGKILL');
      throw error;
    }
    return set;
  }

  get addresses(): string {
    return this.members.map((member) => member.address).join(',');
  }

  /**
   * Returns the primary, after an election if one is under way. A deposed primary that has not noticed yet has an
   * older election id.
   */
  async primary(): Promise<MongodMember> {
    return until(`a primary of ${this.name}`, async () => {
      const answers = await Promise.all(
        this.members.map(async (member) => ({ member, answer: await hello(member.port) })),
      );
      const primaries = answers.filter(({ answer }) => answer?.isWritablePrimary);
      const election = ({ answer }: (typeof answers)[number]): string => answer?.electionId?.toString() ?? '';
      return primaries.sort((a, b) => election(b).localeCompare(election(a)))[0]?.member;
    });
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    await allEnded(this.members.map((member) => member.end(signal)));
  }

  #configuration({ electionTimeoutMs, configServer }: ReplicaSetSpec): Document {
    return {
      _id: this.name,
      version: 1,
      ...(configServer && { configsvr: true }),
      members: this.members.map((member, index) => ({ _id: index, host: member.address })),
      settings: {
        electionTimeoutMillis: electionTimeoutMs,
        heartbeatIntervalMillis: Math.min(500, Math.max(200, Math.floor(electionTimeoutMs / 5))),
      },
    };
  }
}

function memberOf(spec: ReplicaSetSpec, port: number, index: number): MongodMember {
  const label = `${spec.name}-${index}`;
  return new MongodMember({
    name: `mongod ${label}`,
    binary: spec.binary,
    port,
    dataFolder: join(spec.dataFolder, label),
    logFile: join(spec.logFolder, `${label}.log`),
    args: ['--replSet', spec.name, ...spec.args],
    alone: spec.nodes === 1,
  });
}

async function initiate(port: number, config: Document): Promise<void> {
  try {
    await adminCommand(port, { replSetInitiate: config });
  } catch (error) {
    if (!(error instanceof MongoServerError) || error.code !== alreadyInitialized) throw error;
    await moveToNewPorts(port, config);
  }
}

/** Data of an earlier run has the ports of that run. Forced, because without its ports the set has no majority. */
async function moveToNewPorts(port: number, config: Document): Promise<void> {
  const { config: earlier } = await adminCommand(port, { replSetGetConfig: 1 });
  const { version, settings } = earlier as { version: number; settings: Document };
  const moved = {
    ...(earlier as Document),
    version: version + 1,
    members: config['members'] as Document[],
    settings: { ...settings, ...(config['settings'] as Document) },
  };
  await adminCommand(port, { replSetReconfig: moved, force: true });
}
