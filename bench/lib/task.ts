import type { Assignment } from './child.js';
import type { MongoClient } from 'mongodb';
import { load } from '../contenders/contender.js';
import { loadReactive, type ReactiveName } from '../contenders/reactive/contender.js';
import { reactiveTasks } from '../measure/reactive/tasks.js';
import { tasks } from '../measure/tasks.js';

/** How a task talks to the process that gave it. */
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

// A library that is cut off by the end of its client may reject into nothing.
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

/** Opens what the assignment speaks of: a queue, or a library's reactive tasks. */
async function perform(
  assignment: Assignment,
  client: MongoClient,
): Promise<{ value: unknown; stop: () => Promise<void> }> {
  const reactive = reactiveTasks[assignment.task];
  if (reactive === undefined) {
    const contender = await (await load(assignment.contender)).open(client, assignment);
    const value = await tasks[assignment.task]!({ assignment, client, contender, parent });
    return { value, stop: () => contender.stop() };
  }
  const module = await loadReactive(assignment.contender as ReactiveName);
  const contender = await module.open(client, assignment);
  const value = await reactive({ assignment, client, contender, parent });
  return { value, stop: () => contender.stop() };
}

/** The entry of every child: opens one contender, does one task, and leaves. */
async function main(): Promise<void> {
  const assignment = JSON.parse(process.argv[2] ?? '') as Assignment;
  const contenderModule = await load(assignment.contender);
  const Client = await contenderModule.driver();
  const client = new Client(assignment.uri, {
    monitorCommands: assignment['monitor'] === true,
    writeConcern: { w: 'majority' },
  });
  await client.connect();
  const { value, stop } = await perform(assignment, client);
  leaving = true;
  await Promise.race([stop().catch(() => undefined), new Promise((resolve) => setTimeout(resolve, 5_000))]);
  await client.close().catch(() => undefined);
  // A long answer is still on its way when `send` returns, and would be lost with the channel.
  await new Promise((resolve) => process.send?.({ kind: 'result', value }, undefined, undefined, resolve));
  process.disconnect();
  // Some libraries leave timers behind; a profile is only written by an orderly exit.
  setTimeout(() => process.exit(0), 200).unref();
}

main().catch((error: unknown) => {
  parent.say('failed', { error: error instanceof Error ? error.stack : String(error) });
  setTimeout(() => process.exit(1), 100);
});
