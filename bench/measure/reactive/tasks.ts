import type { CommandStartedEvent, MongoClient } from 'mongodb';
import { SOURCE, TASKS, type Data, type ReactiveContender } from '../../contenders/reactive/contender.js';
import type { Assignment } from '../../lib/child.js';
import { nanos, sinceMs, sleep } from '../../lib/clock.js';
import { CommandCounter, type Commands } from '../../lib/commands.js';
import { round } from '../../lib/stats.js';
import type { Parent } from '../../lib/task.js';
import { tenths } from '../tasks.js';

interface TaskContext {
  readonly assignment: Assignment;
  readonly client: MongoClient;
  readonly contender: ReactiveContender;
  readonly parent: Parent;
}

type ReactiveTask = (context: TaskContext) => Promise<unknown>;

/** What one instance did between `go` and `stop`. */
export interface Reacted {
  /** How often the handler ran. */
  readonly runs: number;
  /** How many documents it ran for. */
  readonly documents: number;
  readonly firstMs: number | null;
  readonly tenths: readonly number[];
  readonly cpuSeconds: number;
  readonly commands: Commands;
  readonly leads: boolean;
  /** When the handler of each document first started. */
  readonly started: Readonly<Record<number, string>>;
  readonly extra: Readonly<Record<string, unknown>>;
}

const PROBE = -1;
const LIMIT_MS = 120_000;
const QUIET_MS = 2_000;

async function until(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const began = nanos();
  while (!(await condition())) {
    if (sinceMs(began) > LIMIT_MS) throw new Error(`${what} took more than ${LIMIT_MS / 1_000} s`);
    await sleep(10);
  }
}

/**
 * Runs one instance. It is ready when it has handled a document that it wrote itself or, if it runs no handlers, when
 * it leads. From then on, its start no longer affects the measurement.
 */
const react: ReactiveTask = async ({ assignment, client, contender, parent }) => {
  const startedAt: bigint[] = [];
  const first = new Map<number, bigint>();
  let probed = false;
  await contender.start(({ n }: Data) => {
    const now = nanos();
    if (n === PROBE) probed = true;
    else {
      startedAt.push(now);
      if (!first.has(n)) first.set(n, now);
    }
  });
  if (assignment['runs'] === false) await until(() => contender.leads(), 'leading');
  else if (contender.drive === undefined) {
    await client
      .db(assignment.database)
      .collection(SOURCE)
      .insertOne({ data: { n: PROBE } });
    await until(() => probed, 'the first task');
  }
  parent.say('ready');
  await parent.hear('go');
  startedAt.length = 0;
  first.clear();
  const counter = new CommandCounter(client);
  const cpu = process.cpuUsage();
  const began = nanos();
  const stopped = parent.hear('stop');
  const reporting = setInterval(() => parent.say('count', { count: first.size }), 20);
  await contender.drive?.(Number(assignment['documents']));
  await stopped;
  clearInterval(reporting);
  const { user, system } = process.cpuUsage(cpu);
  const reacted: Reacted = {
    runs: startedAt.length,
    documents: first.size,
    firstMs: startedAt[0] === undefined ? null : round(sinceMs(began, startedAt[0]), 1),
    tenths: tenths(startedAt),
    cpuSeconds: round((user + system) / 1e6, 2),
    commands: counter.stop(),
    leads: await contender.leads(),
    started: Object.fromEntries([...first].map(([n, at]) => [n, String(at)])),
    extra: contender.extra?.() ?? {},
  };
  return reacted;
};

/** Counts what an instance asks of the server while nothing happens. */
const idle: ReactiveTask = async ({ assignment, client, contender, parent }) => {
  await contender.start(() => undefined);
  parent.say('ready');
  await parent.hear('go');
  const counter = new CommandCounter(client);
  await sleep(Number(assignment['watchMs']));
  return counter.stop();
};

/** One pass over all documents. */
export interface Pass {
  readonly seconds: number;
  /**
   * When the last batch of documents was sent to the server. The rest of the pass looks for tasks without a document.
   */
  readonly documentsSeconds: number;
  /** Each after a forced collection. */
  readonly samples: readonly { readonly second: number; readonly heapMb: number; readonly rssMb: number }[];
  readonly commands: Commands;
  readonly cpuSeconds: number;
}

/** Plans everything, `passes` times, and samples its heap meanwhile; the process needs --expose-gc. */
const reconcile: ReactiveTask = async ({ assignment, client, contender }) => {
  const passes: Pass[] = [];
  for (let pass = 1; pass <= Number(assignment['passes']); pass += 1) {
    if (pass > 1) await quiet(client);
    const samples: { second: number; heapMb: number; rssMb: number }[] = [];
    const began = nanos();
    const sample = (): void => {
      globalThis.gc?.();
      const { heapUsed, rss } = process.memoryUsage();
      const mb = (bytes: number): number => round(bytes / 2 ** 20, 2);
      samples.push({ second: round(sinceMs(began) / 1_000, 1), heapMb: mb(heapUsed), rssMb: mb(rss) });
    };
    const counter = new CommandCounter(client);
    const cpu = process.cpuUsage();
    const sampling = setInterval(sample, Number(assignment['sampleMs']));
    if (pass === 1) await contender.start(() => undefined);
    await contender.reconcile?.(pass);
    clearInterval(sampling);
    const seconds = round(sinceMs(began) / 1_000, 2);
    const { user, system } = process.cpuUsage(cpu);
    const commands = counter.stop();
    const plans = Object.entries(commands).filter(([label]) => isPlan(label));
    const documentsSeconds = round(Math.max(...plans.map(([, { lastMs }]) => lastMs)) / 1_000, 2);
    const cpuSeconds = round((user + system) / 1e6, 2);
    passes.push({ seconds, documentsSeconds, samples, commands, cpuSeconds });
  }
  return passes;
};

/** Waits until the library has finished what it does after a pass. */
async function quiet(client: MongoClient): Promise<void> {
  let last = nanos();
  const heard = ({ command }: CommandStartedEvent): void => {
    if (Object.values(command).includes(TASKS)) last = nanos();
  };
  client.on('commandStarted', heard);
  await until(() => sinceMs(last) > QUIET_MS, 'coming to rest');
  client.off('commandStarted', heard);
}

const isPlan = (label: string): boolean =>
  label.startsWith(`aggregate ${SOURCE} `) && label.endsWith('$merge');

export const reactiveTasks: Readonly<Record<string, ReactiveTask>> = {
  'reactive:react': react,
  'reactive:idle': idle,
  'reactive:reconcile': reconcile,
};
