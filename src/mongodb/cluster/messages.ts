/**
 * Messages to idle instances: a small capped collection. A process that has written something that others wait for adds
 * a message; each idle instance follows the collection with a tailable cursor. The server wakes such a cursor only for
 * writes to this collection, and a change stream for every write to any collection (ADR 6).
 */
import { Timestamp, type ClientSession, type Collection, type Db, type Document } from 'mongodb';
import { systemClock, within } from '../../core/clock.js';
import type { Hint, ScopeKind, Watch, WatchHandlers } from '../../store/port.js';
import type { Mongo, WakeDocument } from '../context.js';
import { classifyError, isTransient } from '../errors.js';

/** What a message says. `due`: how many jobs of which names. `cancel`: a running job was asked to cancel. `freed`: as `WatchHandlers.freed`; older versions take it for `jobs`. */
export type Message =
  | ({ readonly kind: 'jobs'; readonly due?: readonly (readonly [string, number])[] } & Partial<Hint>)
  | { readonly kind: 'cancel' }
  | { readonly kind: 'freed'; readonly scopes: readonly (readonly [kind: ScopeKind, name: string])[] }
  | { readonly kind: 'tasks'; readonly news: boolean };

/** Some thousands of messages. An instance that falls further behind opens a new cursor, and looks for work. */
const BYTES = 262_144;
/** One command every ten seconds while nothing happens. */
const AWAIT_MS = 10_000;
/** The driver's promise then resolves when the message is sent. */
const UNACKNOWLEDGED = { writeConcern: { w: 0 } } as const;

/** Sending waits for a connection of the pool, and for nothing else. */
const SENT_WITHIN_MS = 200;

/** The name of the collection: one for each collection of jobs. */
export const wakesOf = (jobs: string): string => `${jobs}_wakes`;

const stamped = (message: Message): WakeDocument => ({ t: new Timestamp({ t: 0, i: 0 }), ...message });

/**
 * Returns true if the collection is there and capped. Creates it if `create` is set. Without it, or without the right to
 * create it, every instance follows the change stream instead, which needs no message.
 */
export async function hasMessages(db: Db, name: string, create: boolean): Promise<boolean> {
  const isCapped = async (): Promise<boolean | undefined> => {
    const [found] = await db.listCollections({ name }).toArray();
    return found === undefined ? undefined : (found as { options?: Document }).options?.['capped'] === true;
  };
  try {
    const found = await isCapped();
    if (found === true || !create) return found === true;
    // A message that was sent after somebody had dropped the database created an ordinary collection.
    if (found === false) await db.dropCollection(name);
    await db.createCollection(name, { capped: true, size: BYTES });
    // A tailable cursor on an empty collection is dead at once.
    await db.collection<WakeDocument>(name).insertOne(stamped({ kind: 'jobs' }));
    return true;
  } catch {
    // Another process may have created it at the same moment.
    return (await isCapped().catch(() => undefined)) === true;
  }
}

/** Returns the shell commands that create the collection. */
export const messagesScript = (name: string): string => {
  const text = JSON.stringify(name);
  return [
    `db.createCollection(${text}, { capped: true, size: ${String(BYTES)} });`,
    `db.getCollection(${text}).insertOne({ t: Timestamp(0, 0), kind: "jobs" });`,
  ].join('\n');
};

/** Sends a message. Best effort: if it is lost, so was the connection, and the poll finds the work. */
export async function send({ wakes }: Mongo, message: Message): Promise<void> {
  if (wakes === undefined) return;
  // A server that is gone by now must not hold up the answer to what was written.
  const sending = wakes.insertOne(stamped(message), UNACKNOWLEDGED).catch(() => undefined);
  await within(systemClock, SENT_WITHIN_MS, sending);
}

/** How often to look whether a transaction has ended. */
const LOOK_MS = { first: 2, most: 50 } as const;

/**
 * Sends a message once the session's transaction has ended: a capped collection takes no part in transactions, and the
 * driver has no event for their end.
 */
export function sendAfter(mongo: Mongo, session: ClientSession, message: Message): void {
  if (mongo.wakes !== undefined) afterTransaction(session, () => send(mongo, message));
}

/** Does something, best effort, once the session's transaction has ended. */
export function afterTransaction(session: ClientSession, work: () => Promise<void>): void {
  const look = (waitMs: number): void => {
    const timer = setTimeout(() => {
      if (session.inTransaction() && !session.hasEnded) look(Math.min(waitMs * 2, LOOK_MS.most));
      else void work().catch(() => undefined);
    }, waitMs);
    timer.unref();
  };
  look(LOOK_MS.first);
}

/**
 * Follows the messages from now on. Returns undefined if the collection cannot be followed: it is gone or not capped, or the
 * server refuses. A cursor that breaks is replaced once; since messages may have been missed, every handler is then called.
 */
export async function follow(
  wakes: Collection<WakeDocument>,
  handlers: WatchHandlers,
): Promise<Watch | undefined> {
  let cursor = await cursorFrom(wakes).catch((error: unknown) => {
    if (isTransient(error)) throw classifyError('watch', error, false);
    return undefined;
  });
  if (cursor === undefined) return undefined;
  let open = true;
  const isOpen = (): boolean => open;
  const read = async (): Promise<never> => {
    for (;;) {
      try {
        for (;;) tell((await cursor?.next()) ?? gone(), handlers);
      } catch (error) {
        if (!isOpen() || !isTransient(error)) throw error;
        cursor = await cursorFrom(wakes);
        if (!isOpen()) await cursor?.close();
        for (const message of EVERYTHING) if (isOpen()) tell(message, handlers);
      }
    }
  };
  const ended = read().catch((error: unknown) => {
    if (open) handlers.broken(classifyError('watch', error, false));
  });
  return {
    close: async () => {
      open = false;
      await cursor?.close().catch(() => undefined);
      await ended;
    },
  };
}

const EVERYTHING: readonly Message[] = [{ kind: 'jobs' }, { kind: 'tasks', news: true }, { kind: 'cancel' }];

const gone = (): never => {
  throw new Error('the collection of wake-ups was dropped');
};

/** The latest message comes again as the first: with it, the cursor is known to be open on the server. */
async function cursorFrom(
  wakes: Collection<WakeDocument>,
): Promise<ReturnType<typeof wakes.find> | undefined> {
  const last = await wakes.findOne({}, { sort: { $natural: -1 }, projection: { t: 1 } });
  if (last === null) return undefined;
  const cursor = wakes.find(
    { t: { $gte: last.t } },
    { tailable: true, awaitData: true, maxAwaitTimeMS: AWAIT_MS, batchSize: 100 },
  );
  await cursor.next();
  return cursor;
}

function tell(message: Document, handlers: WatchHandlers): void {
  const { kind, key, name, news, due, scopes } = message;
  if (kind === 'cancel') handlers.cancel();
  else if (kind === 'freed')
    handlers.freed((scopes as [ScopeKind, string][]).map((scope) => ({ kind: scope[0], name: scope[1] })));
  else if (kind === 'tasks') {
    if (news === true) handlers.news();
    handlers.wake('tasks');
  } else {
    const hint = typeof name === 'string' ? { key: key as unknown, name } : undefined;
    handlers.wake('jobs', hint, Array.isArray(due) ? new Map(due as [string, number][]) : undefined);
  }
}
