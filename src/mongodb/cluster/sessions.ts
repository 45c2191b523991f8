/** Transactions that outlive their process: which sessions an instance has used, and their end. */
import type { ClientSession, Document } from 'mongodb';
import type { Mongo } from '../context.js';
import { isTransient, classifyError } from '../errors.js';

/** A session is used again and again by the driver's pool, so an instance has few. */
const MOST_SESSIONS = 1_000;

/** By the instance's life: the sessions that its row has already. */
type Known = Map<string, Set<string>>;
const registered = new WeakMap<Mongo, Known>();

/** Tokens begin with the life that minted them. */
const lifeOf = (token: string): string => token.slice(0, token.lastIndexOf('.'));

function knownOf(mongo: Mongo, life: string): Set<string> {
  const known = registered.get(mongo) ?? new Map<string, Set<string>>();
  registered.set(mongo, known);
  const sessions = known.get(life) ?? new Set<string>();
  known.set(life, sessions);
  return sessions;
}

/**
 * Notes a session with the holder's instance before a transaction of it writes to work. If the process dies, the server
 * keeps that transaction, and with it the work, for a minute; whoever takes over ends it by this note. It is one write for
 * each session of the driver's pool, and best effort: without it, the minute has to be waited for.
 */
export async function noteSession(mongo: Mongo, token: string | null, session: ClientSession): Promise<void> {
  const id = session.id?.id;
  if (token === null || id === undefined) return;
  const known = knownOf(mongo, lifeOf(token));
  const text = id.toString('hex');
  if (known.has(text)) return;
  const note = { $push: { sessions: { $each: [id], $slice: -MOST_SESSIONS } } };
  try {
    const filter = { _id: `instance:${lifeOf(token)}` };
    const { matchedCount } = await mongo.globals.updateOne(filter, note as Document);
    if (matchedCount === 1) known.add(text);
  } catch {
    // Noted by the next transaction of this session.
  }
}

/**
 * Ends the sessions of an instance that is fenced, and so their transactions. One's own sessions need no privilege; those of
 * another database user are left to the server's own limit.
 */
export async function endSessions(mongo: Mongo, row: Document): Promise<void> {
  const sessions = (row['sessions'] ?? []) as readonly unknown[];
  if (sessions.length === 0) return;
  const killSessions = sessions.map((id) => ({ id }));
  try {
    await mongo.client.db('admin').command({ killSessions }, { readPreference: 'primary' });
  } catch (error) {
    if (isTransient(error)) throw classifyError('end the sessions of a dead instance', error, false);
  }
}
