/** What outlives a planner: definitions, leadership, resume points, and the progress of reconciliation. */
import { createHash } from 'node:crypto';
import { BSON, Binary, type Document } from 'mongodb';
import type { TaskAdvert } from '../../store/port.js';
import type {
  Checkpoint,
  PlannerStore,
  PublishedPlan,
  Source,
  TaskPlan,
  TaskState,
  Term,
} from '../../store/reactive.js';
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

const PLANNER = 'planner';
/** Every change of this document notifies the other instances. */
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

const stateId = (task: string): string => `task:${task}`;
const checkpointId = (source: Source): string => `checkpoint:${nameOfSource(source)}`;

const toState = (row: Document): TaskState => row['state'] as TaskState;

export function plannerStore(mongo: () => Mongo): PlannerStore {
  const globals = (): Mongo['globals'] => mongo().globals;

  /**
   * Writes with the leader's term; returns false if a later leader has written. A leader that was superseded cannot
   * undo what its successor wrote.
   */
  const write = async (_id: string, { term }: Term, update: Document[]): Promise<boolean> => {
    try {
      const filter = { _id, $or: [{ term: { $lte: term } }, { term: { $exists: false } }] };
      await globals().updateOne(filter, [...update, { $set: { term } }], { upsert: true });
      return true;
    } catch (error) {
      if (isDuplicate(error)) return false;
      throw error;
    }
  };

  return {
    publish: (plans) =>
      run('publish tasks', async () => {
        const adverts: TaskAdvert[] = [];
        for (const plan of plans) {
          const { id, text, trigger } = definitionOf(plan);
          const kept = { kind: 'definition' as const, task: plan.task, text, plan: pack(plan), trigger };
          await globals().updateOne(
            { _id: `definition:${plan.task}:${id}` },
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
    plans: () =>
      run('read tasks', async () => {
        const rows = await globals().find({ kind: 'definition' }).toArray();
        return rows.map((row: GlobalDocument): PublishedPlan => ({
          id: row._id.slice(row._id.lastIndexOf(':') + 1),
          plan: unpack(row['plan']),
          trigger: row['trigger'] as string,
          firstSeenAt: row['firstSeenAt'] as Date,
          since: row['since'] as unknown,
        }));
      }),
    states: () =>
      run('read tasks', async () => (await globals().find({ kind: 'task' }).toArray()).map(toState)),
    saveState: (term, task, fields) =>
      run('save a task', () =>
        write(stateId(task), term, [
          {
            $set: {
              kind: 'task',
              state: {
                $mergeObjects: [
                  '$state',
                  literal(fields),
                  // Other instances may request a reconciliation at the same moment, and a version never goes back.
                  { wanted: { $max: ['$state.wanted', literal(fields.wanted ?? 0)] } },
                  {
                    handlerVersion: { $max: ['$state.handlerVersion', literal(fields.handlerVersion ?? 0)] },
                  },
                ],
              },
            },
          },
        ]),
      ),
    lead: (self, from) =>
      run('lead', async () => {
        const next = (from ?? 0) + 1;
        const claim = { kind: 'planner' as const, life: self.life, instanceId: self.instanceId, term: next };
        if (from === undefined) {
          const { upsertedCount } = await globals().updateOne(
            { _id: PLANNER },
            { $setOnInsert: { ...claim, tokens: {} } },
            { upsert: true },
          );
          return upsertedCount === 1 ? { life: self.life, term: next } : undefined;
        }
        const { matchedCount } = await globals().updateOne({ _id: PLANNER, term: from }, { $set: claim });
        return matchedCount === 1 ? { life: self.life, term: next } : undefined;
      }),
    resign: async ({ life, term }) => {
      await run('resign', () => globals().updateOne({ _id: PLANNER, life, term }, { $set: { life: null } }));
    },
    load: ({ life, term }) =>
      run('read the planner', async () => {
        const row = await globals().findOne({ _id: PLANNER, life, term });
        if (row === null) return undefined;
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
          { _id: PLANNER, life, term },
          { $set: Object.fromEntries(set) as Document },
        );
        return matchedCount === 1;
      }),
    checkpoint: (source) =>
      run('read a checkpoint', async () => {
        const row = await globals().findOne({ _id: checkpointId(source) });
        return (row?.['checkpoint'] ?? undefined) as Checkpoint | undefined;
      }),
    saveCheckpoint: (term, source, checkpoint) =>
      run('save a checkpoint', () =>
        write(checkpointId(source), term, [
          { $set: { kind: 'checkpoint', checkpoint: { $literal: checkpoint ?? null } } },
        ]),
      ),
    blocked: () =>
      run('read what was set aside', async () => {
        const rows = await globals().find({ kind: 'aside' }).toArray();
        return rows.map((row) => ({
          task: row['task'] as string,
          documents: (row['keys'] as string[]).map((key) => ({ key, id: fromText(key) })),
        }));
      }),
    saveBlocked: (term, { task, documents }) =>
      run('set aside', () => {
        const kept = { kind: 'aside' as const, task, keys: documents.map(({ key }) => key) };
        return write(`aside:${task}`, term, [{ $set: literals(kept) }]);
      }),
    request: (tasks, reason) =>
      run('ask for reconciliation', async () => {
        const filter = {
          kind: 'task' as const,
          ...(tasks === undefined ? {} : { _id: { $in: tasks.map(stateId) } }),
        };
        const rows = await globals()
          .find(filter, { projection: { 'state.task': 1 } })
          .toArray();
        await globals().updateMany(filter, { $inc: { 'state.wanted': 1 }, $set: { 'state.reason': reason } });
        const known = rows.map((row) => (row['state'] as TaskState).task);
        // Defined but not planned yet: its first registration looks at every document anyway.
        const named = tasks === undefined ? {} : { task: { $in: [...tasks] } };
        const defined = await globals()
          .find({ kind: 'definition', ...named }, { projection: { task: 1 } })
          .toArray();
        return [...new Set([...known, ...defined.map((row) => row['task'] as string)])];
      }),
    notifyPeers: async (news) => {
      const count = { $inc: { work: 1, ...(news ? { news: 1 } : {}) } };
      await run('notify instances', () =>
        globals().updateOne({ _id: BELL }, { $set: { kind: 'bell' }, ...count }, { upsert: true }),
      );
    },
  };
}

const literals = (fields: Document): Document =>
  Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, { $literal: value as unknown }]));
