import type { AnyBulkWriteOperation, ClientSession } from 'mongodb';
import type { Lease, Settlement } from '../../../store/port.js';
import { afterTransaction, send } from '../../cluster/messages.js';
import { run, type GlobalDocument, type Mongo } from '../../context.js';
import { settledUnder } from '../../jobs/hold.js';
import {
  earlier,
  keyId,
  markPipeline,
  placed,
  withoutPermits,
  withoutStarts,
  writeKeys,
  type KeyOwner,
  type KeyRef,
  type UnusedStart,
} from './document.js';

/** Work that runs no more, and when it runs next. */
export interface Freed extends KeyRef {
  readonly lease: Lease;
  readonly pendingFrom?: Date | '$$NOW';
  /** Its handler was not called. */
  readonly unstarted?: true;
}

/** What settled jobs with a key free; empty for jobs without one. */
export const freedBy = (settlements: readonly Settlement[]): readonly Freed[] =>
  settlements.flatMap(({ lease, status, set, unstarted }) => {
    if (lease.limit === undefined) return [];
    const pending = status === 'pending' ? { pendingFrom: set.nextRunAt ?? ('$$NOW' as const) } : {};
    return [{ ...lease.limit, lease, ...pending, ...(unstarted === undefined ? {} : { unstarted }) }];
  });

const unusedOf = (freed: readonly Freed[]): readonly UnusedStart[] =>
  freed.flatMap(({ unstarted, lease: { token, key: job, lockedAt: at } }) =>
    unstarted === undefined || at === null ? [] : [{ token, job, at }],
  );

/** Frees one key of some of its jobs. */
function freeing(_id: string, freed: readonly Freed[]): AnyBulkWriteOperation<GlobalDocument> {
  const [from, ...others] = freed.flatMap(({ pendingFrom }) => pendingFrom ?? []);
  const [ref] = freed;
  const left = [
    ...withoutPermits(freed.map(({ lease: { token, key: job } }) => ({ token, job }))),
    ...withoutStarts(unusedOf(freed)),
  ];
  if (from === undefined || ref === undefined) {
    // Without permits, unused starts or pending work there is nothing to write.
    const permits = { 'permits.token': { $in: freed.map(({ lease }) => lease.token) } };
    const filter = { _id, ...(unusedOf(freed).length > 0 ? {} : permits) };
    return { updateOne: { filter, update: [...left, placed] } };
  }
  // A key whose jobs run without permits may have been forgotten meanwhile: pending work inserts it again.
  const update = [...markPipeline(ref, others.reduce(earlier, from)), ...left, placed];
  return { updateOne: { filter: { _id }, update, upsert: true } };
}

/**
 * Frees the keys of work that was settled before. If this is lost, `repairKeys` finds permits without running work.
 * Wakes the instances if one of the keys can run again.
 */
export async function freeKeys(mongo: Mongo, freed: readonly Freed[]): Promise<void> {
  if (freed.length === 0) return;
  const byId = new Map<string, Freed[]>();
  for (const one of freed) byId.set(keyId(one), [...(byId.get(keyId(one)) ?? []), one]);
  const operations = [...byId].map(([_id, some]) => freeing(_id, some));
  await run('free keys', () => writeKeys(mongo, operations));
  void wakeFor(mongo, [...byId.keys()], freed).catch(() => undefined);
}

/** Tells idle instances of keys that were blocked, and have due work. */
async function wakeFor(mongo: Mongo, ids: readonly string[], freed: readonly Freed[]): Promise<void> {
  if (mongo.wakes === undefined) return;
  const rows = await mongo.globals
    .find({
      _id: { $in: [...ids] },
      freedBy: { $in: freed.map(({ lease }) => lease.token) },
      full: false,
      $expr: { $and: ['$at', { $lte: ['$at', '$$NOW'] }] },
    })
    .project<{ name: KeyOwner }>({ _id: 0, name: 1 })
    .toArray();
  const counts = new Map<string, number>();
  for (const { name } of rows) if (typeof name === 'string') counts.set(name, (counts.get(name) ?? 0) + 1);
  if (counts.size > 0) await send(mongo, { kind: 'jobs', due: [...counts] });
  if (rows.some(({ name }) => typeof name !== 'string')) await send(mongo, { kind: 'tasks', news: false });
}

/** Frees the key of a job that was settled in a transaction, once that has committed. */
export function freeAfter(mongo: Mongo, settlement: Settlement, session: ClientSession): void {
  const freed = freedBy([settlement]);
  if (freed.length === 0) return;
  afterTransaction(session, async () => {
    if (await settledUnder(mongo, settlement.lease)) await freeKeys(mongo, freed);
  });
}
