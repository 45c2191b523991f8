import type { MemoryStore } from '../../src/memory/index.js';
import { isIn } from '../../src/memory/reactive/partition.js';
import type { PartitionOnRecord } from '../../src/memory/reactive/registry.js';
import type { TaskTable } from '../../src/memory/reactive/tasks/table.js';
import { isEqual, textOf } from '../../src/memory/reactive/query/values.js';
import type { TaskPlan } from '../../src/store/reactive/reactive.js';
import type { Judge } from './judge.js';

/**
 * A resume point never moves past a change that a live definition has not taken into account: every document that
 * changed before it is planned as it is, or changes again after it, or is about to be visited again. This holds in each
 * partition, for its documents, by its resume point and the definitions in force there.
 */
export function checkResumePoints({ reactive }: MemoryStore, judge: Judge): void {
  const { table, planner } = reactive.opened;
  for (const one of planner.partitions) checkOne(reactive, table, one, judge);
}

function checkOne(
  { log }: MemoryStore['reactive'],
  table: TaskTable,
  { partition, resumePoint: token, plans }: PartitionOnRecord,
  judge: Judge,
): void {
  // A token whose history is gone is found to be dead, and everything is visited again.
  if (token === undefined || token < log.start) return;
  const later = new Set(log.from(token).map(({ collection, id }) => textOf([collection, id])));
  for (const { plan, state } of plans) {
    if (state.wanted > state.done) continue;
    for (const id of idsOf(table, plan)) {
      if (!isIn(partition, id) || later.has(textOf([plan.source.collection, id]))) continue;
      const missed = missedOf(table, plan, id);
      if (missed !== undefined)
        judge.violated(
          `the resume point ${String(token)}${nameOf(partition)} passed ${missed} of ${plan.source.collection} ${textOf(id)} that ${plan.task} has not seen`,
        );
    }
  }
}

const nameOf = ({ index, of }: PartitionOnRecord['partition']): string =>
  of === 1 ? '' : ` of partition ${String(index)} of ${String(of)}`;

/** Existing documents, and those of which only a task is left. */
const idsOf = (table: TaskTable, plan: TaskPlan): readonly unknown[] => {
  const documents = table.context.collection(plan.source.collection);
  const gone = table.of(plan).filter(({ sourceDocId }) => documents.get(sourceDocId) === undefined);
  return [...documents.all().map(({ _id }) => _id), ...gone.map(({ sourceDocId }) => sourceDocId)];
};

/** What a task does not know of a document, in words. */
function missedOf(table: TaskTable, plan: TaskPlan, id: unknown): string | undefined {
  const look = table.look(plan, id);
  const row = table.row(plan, id);
  if (look.outcome === 'gone' || look.outcome === 'left')
    return row?.matched === true ? (look.outcome === 'gone' ? 'the deletion' : 'the leave') : undefined;
  if (look.outcome !== 'matches') return undefined;
  if (row === undefined || !isEqual(row.lastObservedValues, look.snapshot)) return 'a change';
  return row.matched ? undefined : 'the return';
}
