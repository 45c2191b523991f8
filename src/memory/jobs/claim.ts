import { isLate, type JobRecord } from '../../core/records/job.js';
import { fairShare } from '../../core/batches/fair-share.js';
import { setOf } from '../../core/set-of.js';
import {
  isPausedIn,
  type ClaimAnswer,
  type ClaimRequest,
  type DueSummary,
  type Instance,
  type NameLimit,
} from '../../store/port.js';
import { countStart, isCounting, isIdle, planKeyed, type KeyedPlan } from '../limits/keys.js';
import { assign, byTurn, claimFields, KEYED_JOBS, toRecord, type Row } from './records.js';
import type { Table } from './table.js';

export async function peek(table: Table, names: readonly string[]): Promise<DueSummary> {
  const nextDue = new Map<string, Date>();
  const own = setOf(names);
  // There may be thousands of names, and only a few with something pending.
  for (const name of own.size > table.pending.size ? table.pending.keys() : own) {
    if (!own.has(name)) continue;
    for (const row of table.pending.get(name) ?? []) {
      const known = nextDue.get(name);
      if (known === undefined || row.nextRunAt < known) nextDue.set(name, row.nextRunAt);
    }
  }
  const limits = [...table.pending.values()].flatMap((rows) =>
    [...rows].flatMap(({ startBy }) => startBy ?? []),
  );
  const expiresAt = limits.reduce<Date | undefined>(
    (first, at) => (first === undefined || at < first ? at : first),
    undefined,
  );
  return {
    cluster: table.brief(),
    nextDue,
    foreign: false,
    ...(expiresAt === undefined ? {} : { expiresAt }),
  };
}

export async function claim(table: Table, request: ClaimRequest): Promise<ClaimAnswer> {
  const now = table.now();
  const heads = new Map<string, KeyedPlan<Row>>();
  const heldUp = new Map<string, Date | null>();
  for (const [name, limit] of request.limits) {
    if (isPausedIn(table.context.paused, name)) continue;
    if (limit.notAfter !== undefined && limit.notAfter < now) continue;
    const plan = offered(table, name, limit, now);
    heads.set(name, plan);
    if (plan.heldUp !== undefined) heldUp.set(name, plan.heldUp);
  }
  const offers = [...heads].map(
    ([name, { rows }]) => [name, Math.min(rows.length, request.limits.get(name)?.max ?? 0)] as const,
  );
  const shares = fairShare(new Map(offers), request.total);
  const taken = [...heads].flatMap(([name, { rows }]) => rows.slice(0, shares.get(name) ?? 0));
  for (const row of taken) take(table, row, request, now);
  const more = [...heads].some(([name, { rows, isMore }]) => isMore || rows.length > (shares.get(name) ?? 0));
  return {
    jobs: taken.map(toRecord),
    asked: taken.length,
    more,
    ...(heldUp.size === 0 ? {} : { heldUp }),
    cluster: table.brief(),
  };
}

/** What may be taken of a name, in order: all that is due, or what its keys allow. */
function offered(
  table: Table,
  name: string,
  { max, keys: rule, turns }: NameLimit,
  now: Date,
): KeyedPlan<Row> {
  const isDue = (row: Row): boolean =>
    row.nextRunAt <= now && !isLate(row, now.getTime()) && table.context.admission.admits(row.id);
  if (rule === undefined)
    return { rows: [...(table.pending.get(name) ?? [])].filter(isDue).sort(byTurn), isMore: false };
  table.keyed.add(name);
  const states = [...(table.keys.get(name)?.values() ?? [])];
  for (const state of states)
    if (isIdle(state) && !isCounting(state, rule, now.getTime())) table.forgetKey(name, state.key);
  return planKeyed(KEYED_JOBS, states, rule, { max, now: now.getTime(), isDue, turns });
}

function take(table: Table, row: Row, request: ClaimRequest, now: Date): void {
  const rule = request.limits.get(row.name)?.keys;
  const key = rule === undefined ? undefined : table.keyOf(row);
  // As on other stores: a job without a key gets the empty one when it is claimed by keys.
  if (rule !== undefined) assign(row, { limitKey: row.limitKey ?? '' });
  if (rule !== undefined && key !== undefined) countStart(key, rule, now.getTime(), (table.turns += 1));
  table.move(row, 'processing');
  assign(row, claimFields(request, now));
}

export async function claimedUnder(
  table: Table,
  instance: Instance,
  token: string,
): Promise<readonly JobRecord[]> {
  return table.all(
    (row) => row.status === 'processing' && row.leaseToken === token && row.claimedBy === instance.instanceId,
  );
}
