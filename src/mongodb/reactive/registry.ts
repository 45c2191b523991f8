/** What outlives a planner: definitions, leadership, resume points, and the progress of reconciliation. */
import { createHash } from 'node:crypto';
import { BSON, Binary, type Document, type UpdateOptions } from 'mongodb';
import type { Partition } from '../../store/reactive/partitions.js';
import type { TaskAdvert } from '../../store/port.js';
import type {
  Checkpoint,
  PlannerStore,
  PublishedPlan,
  Source,
  TaskPlan,
  TaskState,
  Term,
} from '../../store/reactive/reactive.js';
import { send } from '../cluster/messages.js';
import { literal, run, type GlobalDocument, type Mongo } from '../context.js';
import { isDuplicate } from '../errors.js';
import { EXACT } from '../exact.js';
import { fromText } from './document.js';
import { nameOfSource } from './sources.js';

/** Filters have `$` and dots in their keys, so a definition is stored as text, for people and for comparison. */
const encode = (value: unknown): string => BSON.EJSON.stringify({ value }, { relaxed: false });
/**
 * The plan itself is stored as bytes: read from text, `{ $regex, $ne }` would lose its `$ne`, and a long its digits.
 */
const pack = (plan: TaskPlan): Binary => new Binary(BSON.serialize(plan));
const unpack = (bytes: unknown): TaskPlan =>
  BSON.deserialize(bytes instanceof Binary ? bytes.buffer : (bytes as Uint8Array), EXACT) as TaskPlan;
const digest = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, 32);

/** Every change of this document notifies the other instances that follow the change stream; a message, the rest. */
const BELL = 'bell';
/** Stands for the store's own database; no database can have this name. */
const OWN_DATABASE = ' ';

const definitionOf = (plan: TaskPlan): { id: string; text: string; trigger: string } => {
  const text = encode(plan);
  return {
    id: digest(text),
    text,
    trigger: digest(encode([plan.source, plan.filter ?? null, plan.watchProjection ?? null])),
  };
};

const definitionId = (task: string, id: string): string => `definition:${task}:${id}`;

type RecordKind = 'planner' | 'task' | 'checkpoint' | 'aside';

interface PartitionIds {
  readonly planner: string;
  readonly task: (task: string) => string;
  readonly checkpoint: (source: Source) => string;
  readonly aside: (task: string) => string;
  readonly kindOf: (record: RecordKind) => GlobalDocument['kind'];
  /** Fields that tell the records of partitions apart. */
  readonly own: { readonly partition?: number };
}

/**
 * How the records of a partition are named. Those of partition 0 are named as if it were the only one; older versions
 * know no others.
 */
export const idsOf = ({ index }: Partition): PartitionIds => {
  const prefix = index === 0 ? '' : `partition:${String(index)}:`;
  return {
    planner: `${prefix}planner`,
    task: (task: string): string => `${prefix}task:${task}`,
    checkpoint: (source: Source): string => `${prefix}checkpoint:${nameOfSource(source)}`,
    aside: (task: string): string => `${prefix}aside:${task}`,
    kindOf: (record: RecordKind): GlobalDocument['kind'] => (index === 0 ? record : `${record}-part`),
    own: index === 0 ? {} : { partition: index },
  };
};

/** In a query of the record of partition 0: this number is in force. */
const inForce = (of: number): Document => ({ partitions: of === 1 ? { $in: [1, null] } : of });

const toState = (row: Document): TaskState => row['state'] as TaskState;

/**
 * Where the tasks of all definitions are, or of those of one task. Leaves out filters and options, which may be large.
 * Definitions of an older version tell the source only within the plan.
 */
export async function definedSources(
  globals: Mongo['globals'],
  task?: string,
): Promise<readonly { readonly task: string; readonly source: Source }[]> {
  const meant = { kind: 'definition' as const, ...(task === undefined ? {} : { task }) };
  const found = await globals.find(meant, { projection: { task: 1, source: 1 } }).toArray();
  const older = found.some((row) => row['source'] === undefined)
    ? await globals.find({ ...meant, source: { $exists: false } }, { projection: { plan: 1 } }).toArray()
    : [];
  const sources = new Map(older.map((row) => [row._id, unpack(row['plan']).source]));
  return found.flatMap((row) => {
    const source = (row['source'] as Source | undefined) ?? sources.get(row._id);
    return source === undefined ? [] : [{ task: row['task'] as string, source }];
  });
}

export function plannerStore(mongo: () => Mongo, partition: Partition): PlannerStore {
  const globals = (): Mongo['globals'] => mongo().globals;
  const { planner, kindOf, own, ...idOf } = idsOf(partition);

  /**
   * Writes with the leader's term; returns false if a later leader has written. A leader that was superseded cannot
   * undo what its successor wrote.
   */
  const write = async (
    _id: string,
    { term }: Term,
    update: Document[],
    upsert: boolean = true,
  ): Promise<boolean> => {
    try {
      const filter = { _id, $or: [{ term: { $lte: term } }, { term: { $exists: false } }] };
      const { matchedCount } = await globals().updateOne(filter, [...update, { $set: { term } }], { upsert });
      if (upsert || matchedCount > 0) return true;
      return (await globals().findOne({ _id, term: { $gt: term } }, { projection: { _id: 1 } })) === null;
    } catch (error) {
      if (isDuplicate(error)) return false;
      throw error;
    }
  };

  const isInForce = async (): Promise<boolean> =>
    partition.index === 0 ||
    (await globals().countDocuments({
      _id: idsOf({ index: 0, of: 1 }).planner,
      ...inForce(partition.of),
    })) === 1;

  const notifyPeers = async (news: boolean): Promise<void> => {
    const count = { $inc: { work: 1, ...(news ? { news: 1 } : {}) } };
    await run('notify instances', () =>
      globals().updateOne({ _id: BELL }, { $set: { kind: 'bell' }, ...count }, { upsert: true }),
    );
    await send(mongo(), { kind: 'tasks', news });
  };

  return {
    publish: (plans) =>
      run('publish tasks', async () => {
        const adverts: TaskAdvert[] = [];
        for (const plan of plans) {
          const { id, text, trigger } = definitionOf(plan);
          const { task, source } = plan;
          const kept = { kind: 'definition' as const, task, source, text, plan: pack(plan), trigger };
          await globals().updateOne(
            { _id: definitionId(task, id) },
            [
              {
                $set: {
                  ...literals(kept),
                  firstSeenAt: { $ifNull: ['$firstSeenAt', '$$NOW'] },
                  // Every later write is in the history after this point.
                  since: '$$CLUSTER_TIME',
                },
              },
            ],
            { upsert: true },
          );
          adverts.push({ task: plan.task, definition: id, trigger, version: plan.evolution.handlerVersion });
        }
        return adverts;
      }),
    plans: (which) =>
      run('read tasks', async () => {
        const ids = which?.map(({ task, definition }) => definitionId(task, definition));
        const named = ids === undefined ? {} : { _id: { $in: ids } };
        const rows = await globals()
          .find({ kind: 'definition', ...named })
          .toArray();
        return rows.map((row: GlobalDocument): PublishedPlan => ({
          id: row._id.slice(row._id.lastIndexOf(':') + 1),
          plan: unpack(row['plan']),
          trigger: row['trigger'] as string,
          firstSeenAt: row['firstSeenAt'] as Date,
          since: row['since'] as unknown,
        }));
      }),
    states: () =>
      run('read tasks', async () =>
        (
          await globals()
            .find({ kind: kindOf('task'), ...own })
            .toArray()
        ).map(toState),
      ),
    saveState: (term, task, fields) =>
      run('save a task', () =>
        write(
          idOf.task(task),
          term,
          [
            {
              $set: {
                kind: kindOf('task'),
                ...own,
                state: {
                  $mergeObjects: [
                    '$state',
                    literal(fields),
                    // Other instances may request a reconciliation at the same moment, and a version never goes back.
                    { wanted: { $max: ['$state.wanted', literal(fields.wanted ?? 0)] } },
                    {
                      handlerVersion: {
                        $max: ['$state.handlerVersion', literal(fields.handlerVersion ?? 0)],
                      },
                    },
                  ],
                },
              },
            },
            // Of a task that was forgotten meanwhile, a part alone would be no state.
          ],
          fields.definition !== undefined,
        ),
      ),
    lead: (self, from) =>
      run('lead', async () => {
        const next = (from ?? 0) + 1;
        const claim = {
          kind: kindOf('planner'),
          ...own,
          life: self.life,
          instanceId: self.instanceId,
          term: next,
        };
        if (from === undefined) {
          const { upsertedCount } = await globals().updateOne(
            { _id: planner },
            { $setOnInsert: { ...claim, tokens: {} } },
            { upsert: true },
          );
          return upsertedCount === 1 ? { life: self.life, term: next } : undefined;
        }
        const { matchedCount } = await globals().updateOne({ _id: planner, term: from }, { $set: claim });
        return matchedCount === 1 ? { life: self.life, term: next } : undefined;
      }),
    resign: async ({ life, term }) => {
      await run('resign', () => globals().updateOne({ _id: planner, life, term }, { $set: { life: null } }));
    },
    load: ({ life, term }) =>
      run('read the planner', async () => {
        const number = partition.index === 0 ? inForce(partition.of) : {};
        const row = await globals().findOne({ _id: planner, life, term, ...number });
        if (row === null || !(await isInForce())) return undefined;
        const tokens = Object.entries((row['tokens'] ?? {}) as Document);
        return { tokens: Object.fromEntries(tokens.map(([key, token]) => [key.trim(), token as unknown])) };
      }),
    saveTokens: ({ life, term }, tokens) =>
      run('save the resume point', async () => {
        const set = Object.entries(tokens).map(([database, token]) => [
          `tokens.${database || OWN_DATABASE}`,
          token,
        ]);
        const { matchedCount } = await globals().updateOne(
          { _id: planner, life, term },
          { $set: Object.fromEntries(set) as Document },
        );
        return matchedCount === 1;
      }),
    checkpoint: (source) =>
      run('read a checkpoint', async () => {
        const row = await globals().findOne({ _id: idOf.checkpoint(source) });
        return (row?.['checkpoint'] ?? undefined) as Checkpoint | undefined;
      }),
    saveCheckpoint: (term, source, checkpoint) =>
      run('save a checkpoint', () =>
        write(idOf.checkpoint(source), term, [
          { $set: { kind: kindOf('checkpoint'), ...own, checkpoint: { $literal: checkpoint ?? null } } },
        ]),
      ),
    blocked: () =>
      run('read what was set aside', async () => {
        const rows = await globals()
          .find({ kind: kindOf('aside'), ...own })
          .toArray();
        return rows.map((row) => ({
          task: row['task'] as string,
          documents: (row['keys'] as string[]).map((key) => ({ key, id: fromText(key) })),
        }));
      }),
    saveBlocked: (term, { task, documents }) =>
      run('set aside', () => {
        const kept = { kind: kindOf('aside'), ...own, task, keys: documents.map(({ key }) => key) };
        return write(idOf.aside(task), term, [{ $set: literals(kept) }]);
      }),
    request: (tasks, reason) =>
      run('ask for reconciliation', async () => {
        const states = { kind: { $in: ['task', 'task-part'] } };
        const filter = { ...states, ...(tasks === undefined ? {} : { 'state.task': { $in: [...tasks] } }) };
        const rows = await globals()
          .find(filter as never, { projection: { 'state.task': 1 } })
          .toArray();
        const raised = { $inc: { 'state.wanted': 1 }, $set: { 'state.reason': reason } };
        const raise = (options: UpdateOptions) => globals().updateMany(filter as never, raised, options);
        // All or none: a leader that reads half of the requests would pass over a collection twice.
        if (rows.length > 1)
          await mongo().client.withSession((session) => session.withTransaction(() => raise({ session })));
        else await raise({});
        const known = rows.map((row) => (row['state'] as TaskState).task);
        // Defined but not planned yet: its first registration looks at every document anyway.
        const named = tasks === undefined ? {} : { task: { $in: [...tasks] } };
        const defined = await globals()
          .find({ kind: 'definition', ...named }, { projection: { task: 1 } })
          .toArray();
        return [...new Set([...known, ...defined.map((row) => row['task'] as string)])];
      }).then(async (known) => {
        if (partition.of > 1) await notifyPeers(true);
        return known;
      }),
    notifyPeers,
  };
}

const literals = (fields: Document): Document =>
  Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, { $literal: value as unknown }]));
