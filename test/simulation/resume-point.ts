import type { MemoryStore } from '../../src/memory/index.js';
import { isEqual, textOf } from '../../src/memory/reactive/values.js';
import type { Judge } from './judge.js';

/**
 * A resume point never moves past a change that a live definition has not taken into account: every document that changed
 * before it is planned as it is, or changes again behind it, or is about to be looked at again.
 */
export function checkResumePoint({ reactive }: MemoryStore, judge: Judge): void {
  const { table, planner, log } = reactive;
  const token = planner.resumePoint;
  // One whose history is gone is found dead, and everything is looked at again.
  if (token === undefined || token < log.start) return;
  const later = new Set(log.from(token).map(({ collection, id }) => textOf([collection, id])));
  for (const { plan, isBehind } of planner.inForcePlans) {
    if (isBehind) continue;
    for (const { _id: id } of table.context.collection(plan.source.collection).all()) {
      if (later.has(textOf([plan.source.collection, id]))) continue;
      const look = table.look(plan, id);
      const row = table.row(plan, id);
      if (
        look.outcome === 'matches' &&
        (row === undefined || !isEqual(row.lastObservedValues, look.snapshot))
      )
        judge.violated(
          `the resume point ${String(token)} passed a change of ${plan.source.collection} ${textOf(id)} that ${plan.task} has not seen`,
        );
    }
  }
}
