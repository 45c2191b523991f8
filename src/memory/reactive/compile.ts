import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import type { TaskPlan } from '../../store/reactive/reactive.js';
import { compileProjection, type Projection } from './query/projection.js';
import { compileFilter, type Query } from './query/query.js';

export interface Compiled {
  readonly matches: Query;
  readonly snapshot: Projection;
}

/** Compiles a definition; throws if it cannot be evaluated in memory. */
export function compilePlan(where: string, plan: TaskPlan): Compiled {
  const { database, collection } = plan.source;
  if (database !== undefined)
    throw new OptionError(
      `${where}: the memory store has one database only; leave out database (got ${show(database)} for ${show(collection)}).`,
    );
  return {
    matches: compileFilter(`${where}: filter`, plan.filter),
    snapshot: compileProjection(`${where}: watchProjection`, plan.watchProjection),
  };
}
