/** Transactions that outlive their process: notes which sessions an instance has used, and ends those of a dead one. */
import type { ClientSession, Document } from 'mongodb';
import { lifeOf } from '../../store/port.js';
import type { Mongo } from '../context.js';
import { isTransient, classifyError } from '../errors.js';

/** The driver's pool reuses sessions, so an instance has few. */
const MOST_SESSIONS = 1_000;

/** By the life of the instance: the sessions that its document already lists. */
type Known = Map<string, Set<string>>;
const registered = new WeakMap<Mongo, Known>();

function knownOf(mongo: Mongo, life: string): Set<string> {
  const known = registered.get(mongo) ?? new Map<string, Set<string>>();
  registered.set(mongo, known);
  const sessions = known.get(life) ?? new Set<string>();
  known.set(life, sessions);
  return sessions;
}

/**
 * Notes a session with the holder's instance before one of its transactions writes to work. If the process dies, the
 * server keeps the transaction open, and with it the work locked, for a minute. The instance that fences the dead one
 * uses this note to end the transaction. The note takes one write for each session of the driver's pool, and is best
 * effort: without it, the work stays locked for that minute.
 */
export async function noteSession(mongo: Mongo, token: string | null, session: ClientSession): Promise<void> {
  const id = session.id?.id;
  const life = lifeOf(token);
  if (life === undefined || id === undefined) return;
  const known = knownOf(mongo, life);
  const text = id.toString('hex');
  if (known.has(text)) return;
  const note = { $push: { sessions: { $each: [id], $slice: -MOST_SESSIONS } } };
  try {
    const filter = { _id: `instance:${life}` };
    const { matchedCount } = await mongo.globals.updateOne(filter, note as Document);
    if (matchedCount === 1) known.add(text);
  } catch {
    // The next transaction of this session notes it.
  }
}

/**
 * Ends the sessions of a fenced instance, and with them their transactions. A database user needs no privilege to end
 * its own sessions; those of another user are left to the server's own limit.
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
