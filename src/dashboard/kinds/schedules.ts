import type { Schedule } from '../../index.js';
import { may, present, type RequestContext } from '../request-context.js';
import type { ActAnswer, Action, SchedulePage, ScheduleRow } from '../contract.js';
import { badRequest } from '../http/errors.js';
import { checkParameters, cursorOf, limitOf } from '../http/parameters.js';
import { REDACTED } from '../redaction/redact-text.js';
import { partsOf, refOfParts } from '../redaction/reference.js';
import { entryOf } from '../pages/timeline.js';

const RUNS = 10;

/** A key may name a customer, so it counts as data unless it equals the name. */
function isHidden(context: RequestContext, { name, uniqueKey }: Schedule): boolean {
  if (uniqueKey === name) return false;
  return !may(context, 'payload') || context.redactor.text(uniqueKey) !== uniqueKey;
}

function toRow(context: RequestContext, schedule: Schedule): ScheduleRow {
  const { redactor } = context;
  const { name, uniqueKey, failReason, last } = schedule;
  return {
    id: placeOf(context, schedule),
    name: redactor.text(name),
    key: isHidden(context, schedule) ? REDACTED : uniqueKey,
    cron: schedule.cron,
    timezone: schedule.timezone,
    paused: schedule.paused,
    running: schedule.status === 'processing',
    next: (schedule.runs ?? []).map((at) => at.toISOString()),
    failCount: schedule.failCount,
    ...present({
      last: last === undefined ? undefined : entryOf(last, redactor),
      error: failReason === undefined ? undefined : redactor.text(failReason),
    }),
  };
}

/** Identifies a schedule in actions, and is the cursor of the list. */
function placeOf(context: RequestContext, schedule: Schedule): string {
  const ref = refOfParts([schedule.name, schedule.uniqueKey]);
  return isHidden(context, schedule) ? context.seal.close(ref) : ref;
}

/** Ordered by name and key; the cursor is the last schedule of the previous page. */
export async function schedulePage(context: RequestContext, query: URLSearchParams): Promise<SchedulePage> {
  checkParameters(query, ['cursor', 'limit']);
  const limit = limitOf(query);
  const cursor = cursorOf(query);
  const all = await context.mill.schedules.list(undefined, { runs: RUNS });
  const last = cursor === undefined ? -1 : all.findIndex((schedule) => placeOf(context, schedule) === cursor);
  const items = all.slice(last + 1, last + 1 + limit);
  const end = items.at(-1);
  const more = last + 1 + limit < all.length;
  return {
    items: items.map((schedule) => toRow(context, schedule)),
    next: more && end !== undefined ? placeOf(context, end) : null,
  };
}

/**
 * The title for the audit log. A key that differs from the name is data, and stays out of what every viewer can read.
 */
export const scheduleTitle = (ref: string): { target: string; details?: unknown } => {
  const [name = '', key = ''] = partsOf(ref, 2);
  return key === name
    ? { target: `schedule ${name}` }
    : { target: `schedule ${name}, one of its keys`, details: { key } };
};

export async function actOnSchedule(
  { mill }: RequestContext,
  action: Action,
  ref: string,
): Promise<ActAnswer> {
  const [name = '', key = ''] = partsOf(ref, 2);
  switch (action) {
    case 'run-now': {
      const { outcome } = await mill.schedules.runNow(name, key);
      return outcome === 'due'
        ? { outcome, message: 'One run is due now. The times of the schedule do not change.' }
        : { outcome, message: 'A run is already in progress; no other run was started.' };
    }
    case 'pause':
      await mill.schedules.pause(name, key);
      return { outcome: 'paused', message: 'No run starts until the schedule is resumed.' };
    case 'resume':
      await mill.schedules.resume(name, key);
      return { outcome: 'resumed', message: 'The schedule continues with its next run.' };
    case 'remove': {
      const removed = await mill.schedules.remove(name, key);
      return removed
        ? { outcome: 'removed', message: 'The schedule was deleted.' }
        : { outcome: 'missing', message: 'The schedule no longer exists.' };
    }
    default:
      throw badRequest(`Schedules have no action "${action}".`);
  }
}
