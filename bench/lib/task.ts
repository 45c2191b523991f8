import type { Assignment } from './child.js';
import type { MongoClient } from 'mongodb';
import { load, type ContenderName } from '../contenders/contender.js';
import { loadEmbedded, type EmbeddedName } from '../contenders/embedded/contender.js';
import { loadPostgres, type PostgresName } from '../contenders/postgres/contender.js';
import { loadReactive, type ReactiveName } from '../contenders/reactive/contender.js';
import { reactiveTasks } from '../measure/reactive/tasks.js';
import { tasks, type Counting } from '../measure/tasks.js';
import { countingStatements } from './statements.js';

/** How a task communicates with the process that assigned it. */
export interface Parent {
  say(kind: string, fields?: object): void;
  hear(kind: string): Promise<void>;
}

const parent: Parent = {
  say: (kind, fields) => void process.send?.({ kind, ...fields }),
  hear: (kind) =>
    new Promise((resolve) => {
      const listener = (message: { kind: string }): void => {
        if (message.kind !== kind) return;
        process.off('message', listener);
        resolve();
      };
      process.on('message', listener);
    }),
};

/** After this time a library that has not stopped is abandoned. */
const STOP_MS = 5_000;

// A library whose client is closed under it may leave rejections unhandled.
let leaving = false;
process.on('unhandledRejection', (error) => {
  if (leaving) return;
  throw error;
});
process.on('uncaughtException', (error) => {
  if (leaving) return;
  parent.say('failed', { error: error.stack });
  setTimeout(() => process.exit(1), 100);
});

interface Performed {
  readonly value: unknown;
  readonly stop: () => Promise<void>;
}

const countingCommands =
  (client: MongoClient): Counting =>
  () => {
    const commands: Record<string, number> = {};
    const count = ({ commandName }: { commandName: string }): void => {
      commands[commandName] = (commands[commandName] ?? 0) + 1;
    };
    client.on('commandStarted', count);
    return () => {
      client.off('commandStarted', count);
      return commands;
    };
  };

/** Opens what the assignment is about, a queue or a library's reactive tasks, and performs the task. */
async function perform(assignment: Assignment, client: MongoClient): Promise<Performed> {
  const reactive = reactiveTasks[assignment.task];
  if (reactive === undefined) {
    const contender = await (await load(assignment.contender as ContenderName)).open(client, assignment);
    const counting = countingCommands(client);
    const value = await tasks[assignment.task]!({ assignment, counting, contender, parent });
    return { value, stop: () => contender.stop() };
  }
  const module = await loadReactive(assignment.contender as ReactiveName);
  const contender = await module.open(client, assignment);
  const value = await reactive({ assignment, client, contender, parent });
  return { value, stop: () => contender.stop() };
}

async function onMongodb(assignment: Assignment): Promise<Performed> {
  const contenderModule = await load(assignment.contender as ContenderName);
  const Client = await contenderModule.driver();
  const client = new Client(assignment.uri, {
    monitorCommands: assignment['monitor'] === true,
    writeConcern: { w: 'majority' },
  });
  await client.connect();
  const { value, stop } = await perform(assignment, client);
  return {
    value,
    stop: async () => {
      await stop().catch(() => undefined);
      await client.close();
    },
  };
}

async function onPostgres(assignment: Assignment): Promise<Performed> {
  const library = await loadPostgres(assignment.contender as PostgresName);
  const contender = await library.open(assignment);
  const counting = countingStatements(await library.pg());
  const value = await tasks[assignment.task]!({ assignment, counting, contender, parent });
  return { value, stop: () => contender.stop() };
}

async function onEmbedded(assignment: Assignment): Promise<Performed> {
  const library = await loadEmbedded(assignment.contender as EmbeddedName);
  const contender = await library.open(assignment);
  // Nothing is asked of a server.
  const counting: Counting = () => () => ({});
  const value = await tasks[assignment.task]!({ assignment, counting, contender, parent });
  return { value, stop: () => contender.stop() };
}

const PLACES: Readonly<Record<string, (assignment: Assignment) => Promise<Performed>>> = {
  'file:': onEmbedded,
  'mongodb:': onMongodb,
  'postgres:': onPostgres,
};

/** The entry point of every child: opens one contender, performs one task, and exits. */
async function main(): Promise<void> {
  const assignment = JSON.parse(process.argv[2] ?? '') as Assignment;
  const { value, stop } = await PLACES[new URL(assignment.uri).protocol]!(assignment);
  leaving = true;
  const patience = new Promise((resolve) => setTimeout(resolve, STOP_MS));
  await Promise.race([stop().catch(() => undefined), patience]);
  // A long message is still being sent when `send` returns, and would be lost with the channel.
  await new Promise((resolve) => process.send?.({ kind: 'result', value }, undefined, undefined, resolve));
  process.disconnect();
  // Some libraries leave timers behind. A profile is written only on an orderly exit.
  setTimeout(() => process.exit(0), 200).unref();
}

main().catch((error: unknown) => {
  parent.say('failed', { error: error instanceof Error ? error.stack : String(error) });
  setTimeout(() => process.exit(1), 100);
});
