import type { KeyRule } from '../../../store/port.js';
import { BSON_OPTIONS, type Mongo } from '../../context.js';
import { isDuplicate } from '../../errors.js';
import { aggregateExact } from '../../exact.js';
import { SCHEMA_VERSION } from '../document.js';
import { clusterPipeline, readCluster } from '../peek.js';
import {
  isLimited,
  markKeys,
  mostOf,
  pendingOf,
  placed,
  ruleId,
  ruleText,
  type KeyDocument,
  type Mark,
} from './document.js';
import { addPermits, checkPermits, type KnownKeys } from './permits.js';

/**
 * Where a key stands in the index follows from its rule. If that has changed, all keys that it held up are placed anew,
 * and the claims after this look at them. If claims by the old rule wrote no permits, the jobs that run get theirs.
 * Precondition of the note: the rule is still the one that was read.
 */
export async function changeRule(
  mongo: Mongo,
  name: string,
  rule: KeyRule,
  before: string | undefined,
): Promise<void> {
  const text = ruleText(rule);
  if (text === before) return;
  const most = mostOf(rule);
  if (before === undefined || !isLimited(before)) await addPermits(mongo, name, rule);
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

/** Compares all keys of a name with its jobs. Returns how many keys had to be offered. */
export async function repairKeys(mongo: Mongo, name: string, rule: KeyRule): Promise<number> {
  await mongo.jobs.updateMany(
    { name: { $eq: name }, status: 'pending', v: SCHEMA_VERSION, limitKey: null },
    { $set: { limitKey: '' } },
    { hint: 'tidemill_by_name' },
  );
  await forgetIdle(mongo, name);
  // The keys are read before the jobs: what is pending then and marked later only looks as if it were not offered.
  const known = await keysOf(mongo, name);
  const { byKey, seen } = known;
  await addPermits(mongo, name, rule, known);
  const permitted = [...byKey.values()].filter(({ permits }) => permits.length > 0);
  await checkPermits(
    mongo,
    permitted.map((row) => ({ ...row, seen })),
  );
  const asleep = (await pendingKeys(mongo, name)).filter(({ key, from }) => {
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

async function keysOf(mongo: Mongo, name: string): Promise<KeysOfName> {
  const pipeline = [
    { $match: { kind: 'key', name: { $eq: name } } },
    // The server's time, even if there are no keys.
    { $unionWith: { coll: mongo.globals.collectionName, pipeline: clusterPipeline } },
  ];
  const options = { hint: 'tidemill_keys' };
  const rows = await aggregateExact(mongo.globals, pipeline, options, ['permits'], BSON_OPTIONS).toArray();
  const keys = rows.filter((row) => row['kind'] === 'key') as KeyDocument[];
  return { byKey: new Map(keys.map((row) => [row.key, row])), seen: readCluster(rows).now };
}

const pendingKeys = (mongo: Mongo, name: string): Promise<KeyWork[]> =>
  mongo.jobs
    .aggregate<KeyWork>(
      [
        { $match: pendingOf(name) },
        { $group: { _id: '$limitKey', from: { $min: '$nextRunAt' } } },
        { $project: { _id: 0, key: '$_id', from: 1 } },
      ],
      { hint: 'tidemill_of_key' },
    )
    .toArray();

/** Deletes keys of which nothing is left. Their condition is in the write, and a mark inserts them again. */
async function forgetIdle(mongo: Mongo, name: string): Promise<void> {
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
