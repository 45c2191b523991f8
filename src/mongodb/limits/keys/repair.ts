import type { KeyRule } from '../../../store/port.js';
import type { Mongo } from '../../context.js';
import { isDuplicate } from '../../errors.js';
import { aggregateExact } from '../../exact.js';
import {
  isLimited,
  markKeys,
  mostOf,
  placed,
  ruleId,
  ruleText,
  type KeyDocument,
  type KeyOwner,
  type Mark,
} from './document.js';
import { addPermits, checkPermits, type KnownKeys } from './permits.js';
import { pendingOf } from './read.js';
import type { KeyedWork } from './work.js';

/**
 * Where a key stands in the index follows from its rule. If that has changed, all keys that it held up are placed anew,
 * and the claims after this look at them. If claims by the old rule wrote no permits, the jobs that run get theirs.
 * Precondition of the note: the rule is still the one that was read.
 */
export async function changeRule(
  mongo: Mongo,
  work: KeyedWork,
  rule: KeyRule,
  before: string | undefined,
): Promise<void> {
  const text = ruleText(rule);
  if (text === before) return;
  const { owner: name } = work;
  const most = mostOf(rule);
  if (before === undefined || !isLimited(before)) await addPermits(mongo, work, rule);
  const isLater = { $and: [{ $ne: ['$open', null] }, { $gt: ['$open', '$$NOW'] }] };
  await mongo.globals.updateMany(
    { kind: 'key', name: { $eq: name }, $or: [{ full: true }, { waits: true }, { $expr: isLater }] },
    [
      {
        $set: {
          full: most === Infinity ? false : { $gte: [{ $size: '$permits' }, most] },
          from: { $cond: ['$waits', '$$NOW', '$from'] },
          open: { $min: ['$open', '$$NOW'] },
          waits: false,
          marks: { $add: ['$marks', 1] },
        },
      },
      placed,
    ],
  );
  const note = { $set: { kind: 'key-rule' as const, name, rule: text } };
  const filter = { _id: ruleId(name), ...(before === undefined ? {} : { rule: before }) };
  try {
    await mongo.globals.updateOne(filter, note, { upsert: before === undefined });
  } catch (error) {
    // Another first claim has noted its rule; if it is another one, the next claim finds that out.
    if (!isDuplicate(error)) throw error;
  }
}

interface KeyWork {
  readonly key: string;
  readonly from: Date;
}

/** Compares all keys of a name with its work. Returns how many keys had to be offered. */
export async function repairKeys(mongo: Mongo, work: KeyedWork, rule: KeyRule): Promise<number> {
  const { owner: name, collection, ours, hints } = work;
  await collection.updateMany(
    { ...ours, status: 'pending', limitKey: null },
    { $set: { limitKey: '' } },
    { hint: hints.byName },
  );
  await forgetIdle(mongo, name);
  // The keys are read before the jobs: what is pending then and marked later only looks as if it were not offered.
  const known = await keysOf(mongo, work);
  const { byKey, seen } = known;
  await addPermits(mongo, work, rule, known);
  const permitted = [...byKey.values()].filter(({ permits }) => permits.length > 0);
  await checkPermits(
    mongo,
    work,
    permitted.map((row) => ({ ...row, seen })),
  );
  const asleep = (await pendingKeys(work)).filter(({ key, from }) => {
    const row = byKey.get(key);
    // A key that its first job holds is looked at when that is due.
    return (row?.from ?? null) === null || (row?.waits !== true && (row?.from ?? from) > from);
  });
  await markKeys(
    mongo,
    asleep.map(({ key, from }): Mark => ({ name, key, from })),
  );
  return asleep.length;
}

interface KeysOfName extends KnownKeys {
  readonly byKey: ReadonlyMap<string, KeyDocument>;
}

async function keysOf(mongo: Mongo, work: KeyedWork): Promise<KeysOfName> {
  const pipeline = [
    { $match: { kind: 'key', name: { $eq: work.owner } } },
    // The server's time, even if there are no keys.
    { $unionWith: { coll: mongo.globals.collectionName, pipeline: work.brief } },
  ];
  const options = { hint: 'tidemill_keys' };
  const rows = await aggregateExact(mongo.globals, pipeline, options, ['permits'], work.reading).toArray();
  const keys = rows.filter((row) => row['kind'] === 'key') as KeyDocument[];
  return { byKey: new Map(keys.map((row) => [row.key, row])), seen: work.readBrief(rows).now };
}

const pendingKeys = (work: KeyedWork): Promise<KeyWork[]> =>
  work.collection
    .aggregate<KeyWork>(
      [
        { $match: pendingOf(work) },
        { $group: { _id: '$limitKey', from: { $min: `$${work.due}` } } },
        { $project: { _id: 0, key: '$_id', from: 1 } },
      ],
      { hint: work.hints.ofKey },
    )
    .toArray();

/** Offers all keys of which something is pending, after statements that do not tell which. */
export async function markAll(mongo: Mongo, work: KeyedWork): Promise<void> {
  const { owner: name } = work;
  if ((await mongo.globals.findOne({ _id: ruleId(name) })) === null) return;
  const pending = await pendingKeys(work);
  await markKeys(
    mongo,
    pending.map(({ key, from }): Mark => ({ name, key, from })),
  );
}

/** Deletes keys of which nothing is left. Their condition is in the write, and a mark inserts them again. */
async function forgetIdle(mongo: Mongo, name: KeyOwner): Promise<void> {
  await mongo.globals.deleteMany({
    kind: 'key',
    name: { $eq: name },
    full: false,
    at: null,
    from: null,
    permits: { $size: 0 },
    $expr: { $lte: [{ $ifNull: ['$countsUntil', null] }, '$$NOW'] },
  });
}
