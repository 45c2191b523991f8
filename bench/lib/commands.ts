import type {
  CommandFailedEvent,
  CommandStartedEvent,
  CommandSucceededEvent,
  Document,
  MongoClient,
} from 'mongodb';
import { nanos, sinceMs } from './clock.js';
import { round } from './stats.js';

interface Entry {
  count: number;
  /** Ids that the commands listed. */
  ids: number;
  /** The time from each command to its reply, summed up. */
  ms: number;
  /** When the last of them began, in milliseconds since the counter was created. */
  lastMs: number;
}

/** Commands by name and collection. */
export type Commands = Readonly<Record<string, Readonly<Entry>>>;

/** Counts the commands of a client, which needs `monitorCommands`. The driver's heartbeats are not included. */
export class CommandCounter {
  readonly #entries = new Map<string, Entry>();
  readonly #open = new Map<number, Entry>();
  readonly #client: MongoClient;
  readonly #began = nanos();
  readonly #count = (event: CommandStartedEvent): void => {
    const { commandName, command } = event;
    const label = `${commandName} ${targetOf(commandName, command)}`;
    const entry = this.#entries.get(label) ?? { count: 0, ids: 0, ms: 0, lastMs: 0 };
    entry.count += 1;
    entry.ids += idsOf(command);
    entry.lastMs = sinceMs(this.#began);
    this.#entries.set(label, entry);
    this.#open.set(event.requestId, entry);
  };
  readonly #answered = (event: CommandSucceededEvent | CommandFailedEvent): void => {
    const entry = this.#open.get(event.requestId);
    this.#open.delete(event.requestId);
    if (entry !== undefined) entry.ms += event.duration;
  };

  constructor(client: MongoClient) {
    this.#client = client;
    client.on('commandStarted', this.#count);
    client.on('commandSucceeded', this.#answered);
    client.on('commandFailed', this.#answered);
  }

  stop(): Commands {
    this.#client.off('commandStarted', this.#count);
    this.#client.off('commandSucceeded', this.#answered);
    this.#client.off('commandFailed', this.#answered);
    return Object.fromEntries(this.#entries);
  }
}

/** The collection, the fields of the condition, and what a pipeline does besides reading. */
function targetOf(name: string, command: Document): string {
  const given: unknown = name === 'getMore' ? command['collection'] : command[name];
  const collection = typeof given === 'string' && given !== '$cmd.aggregate' ? given : '(database)';
  const stages = ((command['pipeline'] ?? []) as readonly Document[]).flatMap((stage) => Object.keys(stage));
  const telling = stages.filter((stage) => ['$changeStream', '$merge', '$lookup', '$limit'].includes(stage));
  const fields = Object.keys(conditionOf(command)).filter((field) => field !== '$expr');
  return [collection, ...(fields.length > 0 ? [`by ${fields.join('+')}`] : []), ...new Set(telling)].join(
    ' ',
  );
}

function conditionOf(command: Document): Document {
  const [update] = (command['updates'] ?? []) as readonly Document[];
  const [stage] = (command['pipeline'] ?? []) as readonly Document[];
  return (update?.['q'] ?? command['filter'] ?? command['query'] ?? stage?.['$match'] ?? {}) as Document;
}

/** How many ids the condition of a command lists, at its top level or within `$and`. */
function idsOf(command: Document): number {
  const condition = conditionOf(command);
  const parts = [condition, ...((condition['$and'] ?? []) as readonly Document[])];
  const listed = parts.map((part) => (part['_id'] as Document | undefined)?.['$in'] as unknown);
  return listed.find(Array.isArray)?.length ?? 0;
}

export const total = (commands: Commands): number =>
  Object.values(commands).reduce((sum, { count }) => sum + count, 0);

/** Lists the commands with their counts, and optionally the mean number of ids and the mean duration. */
export const described = (commands: Commands, timed = true): string =>
  Object.entries(commands)
    .sort(([, a], [, b]) => b.count - a.count)
    .map(([label, { count, ids, ms }]) => {
      const each = [...(ids > 0 ? [`${round(ids / count)} ids`] : []), `${round(ms / count, 1)} ms`];
      return `${label} ${count}${timed ? ` (${each.join(', ')})` : ''}`;
    })
    .join(', ');

/** Adds up the commands of several processes. */
export function sum(all: readonly Commands[]): Commands {
  const added: Record<string, Entry> = {};
  for (const [label, { count, ids, ms, lastMs }] of all.flatMap((one) => Object.entries(one))) {
    const before = added[label] ?? { count: 0, ids: 0, ms: 0, lastMs: 0 };
    added[label] = {
      count: before.count + count,
      ids: before.ids + ids,
      ms: before.ms + ms,
      lastMs: Math.max(before.lastMs, lastMs),
    };
  }
  return added;
}
