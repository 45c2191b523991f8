/** How many partitions there are, and who leads those from 1 on. */
import type { AnyBulkWriteOperation, ClientSession, Document } from 'mongodb';
import type { Division, Partitioning } from '../../store/reactive/partitions.js';
import type { Leader } from '../../store/port.js';
import type { BlockedOfTask, TaskState, Term } from '../../store/reactive/reactive.js';
import { run, type GlobalDocument, type Mongo } from '../context.js';
import { fromText } from './document.js';
import { timeOf } from './feed.js';
import { idsOf } from './registry.js';

type Tokens = Readonly<Record<string, unknown>>;

/** Returns the earlier of two resume points as a time; undefined if one of them has none. */
function earlier(one: unknown, other: unknown): unknown {
  const [a, b] = [timeOf(one), timeOf(other)];
  if (a === undefined || b === undefined) return undefined;
  return a.lessThan(b) ? a : b;
}

/**
 * Returns the lowest resume point of each database, as a time: a stream finds the token of an event only if its
 * pipeline lets that event through. A database without a point in some partition is left out: all is reconciled then.
 */
export function lowest(all: readonly Tokens[]): Tokens {
  const [first = {}] = all;
  const points = Object.keys(first).map((database) => [
    database,
    all.map((tokens) => tokens[database]).reduce(earlier, first[database]),
  ]);
  return Object.fromEntries(points.filter(([, point]) => point !== undefined)) as Tokens;
}

const partitionOf = (row: Document): number => (row['partition'] as number | undefined) ?? 0;

/** Everything that leaders have on record, by partition. */
async function read(
  { globals }: Mongo,
  session: ClientSession,
): Promise<(kind: string, partition: number) => readonly Document[]> {
  const kinds = ['planner', 'task', 'aside'].flatMap((kind) => [kind, `${kind}-part`]);
  const rows = await globals.find({ kind: { $in: kinds } } as never, { session }).toArray();
  return (kind, partition) =>
    rows.filter((row) => row.kind.startsWith(kind) && partitionOf(row) === partition);
}

const blockedOf = (row: Document): BlockedOfTask => ({
  task: row['task'] as string,
  documents: (row['keys'] as string[]).map((key) => ({ key, id: fromText(key) })),
});

/** The writes with which a partition begins anew, under a term that no instance holds. */
function begin(
  partition: number,
  term: number,
  tokens: Tokens,
  states: readonly TaskState[],
): readonly AnyBulkWriteOperation<GlobalDocument>[] {
  const { planner, task, kindOf, own } = idsOf({ index: partition, of: partition + 1 });
  const set = (filter: object, fields: object, many: boolean): AnyBulkWriteOperation<GlobalDocument> =>
    many
      ? { updateMany: { filter, update: { $set: { ...fields, term } } } }
      : {
          updateOne: {
            filter,
            update: { $set: { ...own, ...fields, term } },
            upsert: true,
          },
        };
  return [
    set({ _id: planner }, { kind: kindOf('planner'), life: null, tokens }, false),
    set({ kind: kindOf('checkpoint'), ...own }, { checkpoint: null }, true),
    set({ kind: kindOf('aside'), ...own }, { keys: [] }, true),
    { deleteMany: { filter: { kind: kindOf('task'), ...own } } },
    ...states.map((state) => set({ _id: task(state.task) }, { kind: kindOf('task'), state }, false)),
  ];
}

async function divide(
  mongo: Mongo,
  session: ClientSession,
  { life, term }: Term,
  { from, to, ended, merge }: Division,
): Promise<boolean> {
  const { globals } = mongo;
  const of = await read(mongo, session);
  const [first] = of('planner', 0);
  const leads = first !== undefined && first['life'] === life && first['term'] === term;
  if (!leads || (first['partitions'] ?? 1) !== from) return false;
  const most = Math.max(from, to);
  const leaders = Array.from({ length: most }, (_, index) => of('planner', index)[0]);
  const isLed = leaders.some(
    (row, index) =>
      index > 0 && row !== undefined && row['life'] !== null && ended.get(index) !== row['term'],
  );
  if (isLed) return false;
  const old = Array.from({ length: from }, (_, index) => index);
  const states = merge(
    old.map((index) => ({
      states: of('task', index).map((row) => row['state'] as TaskState),
      blocked: of('aside', index).map(blockedOf),
    })),
  );
  const tokens = lowest(old.map((index) => (leaders[index]?.['tokens'] ?? {}) as Tokens));
  const writes = leaders.flatMap((row, index) => {
    const next = ((row?.['term'] as number | undefined) ?? 0) + 1;
    return index < to ? begin(index, next, tokens, states) : begin(index, next, {}, []);
  });
  await globals.bulkWrite(writes, { session, ordered: true });
  await globals.updateOne(
    { _id: idsOf({ index: 0, of: to }).planner },
    { $set: { partitions: to, next: null } },
    {
      session,
    },
  );
  return true;
}

export function partitioning(mongo: () => Mongo): Omit<Partitioning, 'within'> {
  return {
    leaders: () =>
      run('read leaders', async () => {
        const rows = await mongo()
          .globals.find({ kind: 'planner-part' }, { projection: { _id: 0, tokens: 0, kind: 0 } })
          .toArray();
        return new Map(rows.map((row) => [partitionOf(row), row as unknown as Leader]));
      }),
    announce: ({ life, term }, next) =>
      run('announce partitions', async () => {
        const { planner } = idsOf({ index: 0, of: 1 });
        // A server that does not know the hash refuses here, before anything has changed.
        const hash = { $project: { hash: { $toHashedIndexKey: '$_id' } } };
        if (next > 1)
          await mongo()
            .globals.aggregate([{ $limit: 1 }, hash])
            .toArray();
        const { matchedCount } = await mongo().globals.updateOne(
          { _id: planner, life, term },
          { $set: { next } },
        );
        return matchedCount === 1;
      }),
    divide: (term, division) =>
      run('divide planning', () =>
        mongo().client.withSession((session) =>
          session.withTransaction(() => divide(mongo(), session, term, division), {
            readConcern: { level: 'snapshot' },
            writeConcern: { w: 'majority' },
            readPreference: 'primary',
          }),
        ),
      ),
  };
}
