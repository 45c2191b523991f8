import { ObjectId, type Document } from 'mongodb';

export type Kind = 'due' | 'future' | 'finished';

const DAY_MS = 86_400_000;

/** A job as Tidemill stores it. The raw contenders use the same shape. */
export function document(n: number, kind: Kind = 'due', now = Date.now()): Document {
  const createdAt = new Date(now);
  const common = {
    _id: new ObjectId(),
    v: 1,
    name: 'noop',
    data: { n },
    status: 'pending',
    priority: 0,
    nextRunAt: kind === 'future' ? new Date(now + DAY_MS + n) : createdAt,
    lockedAt: null,
    failCount: 0,
    createdAt,
    updatedAt: createdAt,
  };
  if (kind !== 'finished') return common;
  const times = { startedAt: createdAt, finishedAt: createdAt, durationMs: 0 };
  const history = [{ attempt: 1, status: 'completed', ...times, instanceId: 'host-1-00000000' }];
  return {
    ...common,
    status: 'completed',
    finishedAt: createdAt,
    expiresAt: new Date(now + DAY_MS),
    leaseToken: `gone.${n}`,
    history,
  };
}

/** Yields `count` documents, in batches of a thousand by default. */
export function* documents(count: number, kind: Kind = 'due', size = 1_000): Generator<Document[]> {
  for (let from = 0; from < count; from += size) {
    yield Array.from({ length: Math.min(size, count - from) }, (_, index) => document(from + index, kind));
  }
}
