/**
 * Plans a batch for several tasks of one collection in one statement: each document is read once, every filter is
 * evaluated on it, and the tasks of all that match are merged. A second statement finds the tasks that lost their
 * document, if the batch has any that may have.
 */
import type { Document } from 'mongodb';
import { StoreError } from '../../../core/errors.js';
import type { TraceContext } from '../../../core/tracer.js';
import type { PlanBatch, TaskPlan } from '../../../store/reactive/reactive.js';
import { literal } from '../../context.js';
import { classifyError, isTimeLimit, isTransient } from '../../errors.js';
import { markPlanned } from '../keyed.js';
import type { MongodbSources, Place } from '../sources.js';
import { queryOf } from './filter.js';
import { COUNTED, leaveStage, snapshotStages, termsOfAll, writeStages } from './stages.js';

/** Runs a pipeline for each task on the same rows, and continues with the rows of all of them. */
function forEach(plans: readonly TaskPlan[], pipelineOf: (plan: TaskPlan) => Document[]): Document[] {
  const parts = plans.map((plan, at) => [`t${String(at)}`, pipelineOf(plan)] as const);
  return [
    { $facet: Object.fromEntries(parts) },
    { $project: { rows: { $concatArrays: parts.map(([name]) => `$${name}`) } } },
    { $unwind: '$rows' },
    { $replaceWith: '$rows' },
  ];
}

/** The statement that plans a batch of several tasks. A query cannot set a field, so each task has a `$match`. */
export const planAllPipeline = (
  plans: readonly TaskPlan[],
  place: Place,
  ids: readonly unknown[],
  trace?: TraceContext,
): Document[] => [
  { $match: { _id: { $in: ids } } },
  ...forEach(plans, (plan) => [
    { $match: queryOf(plan) },
    ...snapshotStages(plan),
    { $set: { task: literal(plan.task) } },
  ]),
  ...writeStages(termsOfAll(plans), place, trace),
];

/**
 * Marks the tasks of these ids whose document is gone or no longer matches. With the index of documents (`indexed`), the
 * tasks of an id cost one key; without it, one for each task that does not match. The server makes these keys: a list of
 * all of them would be very long.
 */
export function unmatchAllPipeline(
  plans: readonly TaskPlan[],
  place: Place,
  ids: readonly unknown[],
  indexed: boolean,
): Document[] {
  const names = literal(plans.map(({ task }) => task));
  const left = { $setDifference: [names, '$matching'] };
  const keys = { $map: { input: left, in: { task: '$$this', id: '$_id' } } };
  return [
    { $match: { _id: { $in: ids } } },
    ...forEach(plans, (plan) => [
      { $match: queryOf(plan) },
      { $project: { _id: 1 } },
      { $set: { task: literal(plan.task) } },
    ]),
    // Ids that no task matches have no row so far; those without a document among them.
    { $unionWith: { pipeline: [{ $documents: literal(ids.map((_id) => ({ _id }))) }] } },
    { $group: { _id: '$_id', matching: { $push: '$task' } } },
    ...(indexed ? [] : [{ $set: { keys } }]),
    {
      $lookup: {
        from: place.tasks.collectionName,
        localField: indexed ? '_id' : 'keys',
        foreignField: indexed ? 'sourceDocId' : '_id',
        pipeline: [{ $match: COUNTED }, { $project: { task: 1 } }],
        as: 'tasks',
      },
    },
    { $project: { left, tasks: 1 } },
    { $unwind: '$tasks' },
    { $match: { $expr: { $in: ['$tasks.task', '$left'] } } },
    { $replaceWith: { _id: '$tasks._id' } },
    leaveStage(place),
  ];
}

/** A statement for several tasks is made so small that it takes half of this; see `PlanBatches`. */
const TOGETHER_MS = 1_000;

/**
 * Returns false if a statement fails, unless the error is likely to pass: planning each task alone finds out which one
 * fails, and on which document.
 */
export async function planTogether(
  sources: MongodbSources,
  plans: readonly TaskPlan[],
  { present, left }: PlanBatch,
  limitMs: number,
  trace?: TraceContext,
): Promise<boolean> {
  const [{ source }] = plans as readonly [TaskPlan];
  const write = (statement: (limit: object) => Promise<unknown>): Promise<void> =>
    sources.majority.write(Math.min(limitMs, TOGETHER_MS), limitMs, statement);
  try {
    const place = await sources.open(source);
    // Filters follow the collation of the source, and comparisons must not: that takes two statements per task.
    if (place.collation !== undefined) return false;
    const indexed = sources.findsByDocument(source, plans.length);
    if (present.length > 0) {
      const pipeline = planAllPipeline(plans, place, present, trace);
      await write((limit) => place.source.aggregate(pipeline, limit).toArray());
      await markPlanned(sources, place.tasks, plans, present);
    }
    if (left.length > 0) {
      const pipeline = unmatchAllPipeline(plans, place, left, indexed);
      await write((limit) => place.source.aggregate(pipeline, limit).toArray());
    }
    return true;
  } catch (error) {
    if (isTimeLimit(error) || !(error instanceof StoreError ? error.transient : isTransient(error)))
      return false;
    throw classifyError('plan', error, false);
  }
}
