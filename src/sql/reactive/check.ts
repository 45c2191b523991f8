import { OptionError } from '../../core/errors.js';
import type { TaskPlan } from '../../store/reactive/reactive.js';
import { refusesText } from '../connection/values.js';
import { parseName } from '../tables/table-name.js';
import { checkFilter, checkProjection } from './plan/filter.js';

/** Checks what the definition of a task tells by itself. */
export function checkPlan(where: string, of: TaskPlan): TaskPlan {
  const { database, collection } = of.source;
  if (database !== undefined)
    throw new OptionError(
      `${where}: database applies to MongoDB only. This store watches tables of its own database; name a schema in collection: ` +
        "'sales.orders'.",
    );
  const fault = refusesText(of.task) ?? refusesText(collection);
  if (fault !== null) throw new OptionError(`${where}: task or collection ${fault}; use another name.`);
  parseName(where, collection);
  checkFilter(where, of.filter);
  checkProjection(where, 'watchProjection', of.watchProjection);
  return of;
}
