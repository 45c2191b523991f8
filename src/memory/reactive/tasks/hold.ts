/** Reads and writes of held tasks, between claim and settlement. */
import { LeaseLostError, OptionError } from '../../../core/errors.js';
import { checkKeys } from '../../../core/options.js';
import type { TaskRecord } from '../../../core/records/task.js';
import { lifeOf, type Instance, type Lease, type StrayQuery } from '../../../store/port.js';
import {
  ONLY_MONGODB_FETCHES_BY,
  type Fetched,
  type FetchAllRequest,
  type FetchRequest,
} from '../../../store/reactive/reactive.js';
import { compileProjection } from '../query/projection.js';
import { isRunning, toRecord } from './row.js';
import type { TaskTable } from './table.js';
import { isEqual, isPlain } from '../query/values.js';

export async function held(
  table: TaskTable,
  leases: readonly Lease[],
): Promise<readonly (TaskRecord | undefined)[]> {
  return leases.map((lease) => {
    const row = table.holding(lease);
    return row === undefined ? undefined : toRecord(row);
  });
}

export async function settledUnder(table: TaskTable, { key, token }: Lease): Promise<boolean> {
  const row = table.rows.get(String(key));
  return row === undefined || (!isRunning(row) && row.leaseToken === token);
}

export async function begin(table: TaskTable, lease: Lease): Promise<'begun' | 'lost'> {
  const row = table.holding(lease);
  if (row === undefined || lease.token === null) return 'lost';
  row.startedToken = lease.token;
  return 'begun';
}

export async function heldBy(
  table: TaskTable,
  { life }: Instance,
  limit: number,
): Promise<readonly TaskRecord[]> {
  return table
    .all((row) => isRunning(row) && lifeOf(row.leaseToken) === life)
    .slice(0, limit)
    .map((row) => toRecord(row));
}

/** Returns tasks held under no valid lease: their claim landed after its owner was fenced. */
export async function strays(
  table: TaskTable,
  { lives, olderThanMs, limit }: StrayQuery,
): Promise<readonly TaskRecord[]> {
  const before = table.context.now().getTime() - olderThanMs;
  const known = new Set(lives.map(({ life }) => life));
  return table
    .all(
      (row) =>
        isRunning(row) && !known.has(lifeOf(row.leaseToken) ?? '') && (row.lockedAt?.getTime() ?? 0) < before,
    )
    .slice(0, limit)
    .map((row) => toRecord(row));
}

function check(where: string, options: Readonly<Record<string, unknown>>): void {
  const foreign = ONLY_MONGODB_FETCHES_BY.find((option) => options[option] !== undefined);
  if (foreign !== undefined)
    throw new OptionError(`${where}: ${foreign} is an option of the MongoDB store; leave it out.`);
  checkKeys(where, options, ['projection', 'transaction']);
}

/** Returns the document if it exists, matches, and its watched fields are as they were when the task was planned. */
export async function fetch(table: TaskTable, { plan, lease, options }: FetchRequest): Promise<Fetched> {
  const where = `getDocument of ${plan.task}`;
  check(where, options);
  const row = table.holding(lease);
  if (row === undefined) throw new LeaseLostError(`This attempt no longer holds the task "${plan.task}".`);
  const look = table.look(plan, row.sourceDocId);
  if (look.outcome === 'fails') throw new OptionError(`${where}: ${look.reason}`);
  if (row.overtaken || look.outcome !== 'matches' || !isEqual(look.snapshot, row.lastObservedValues))
    return { missing: true };
  const { projection } = options;
  if (!isPlain(projection) || Object.keys(projection).length === 0) return { document: look.document };
  const project = compileProjection(`${where}: projection`, projection);
  return { document: project({ document: look.document, now: table.context.now() }) };
}

/** Fetches the documents of several tasks; undefined for those that are not held under their lease. */
export function fetchAll(
  table: TaskTable,
  { leases, ...request }: FetchAllRequest,
): Promise<readonly (Fetched | undefined)[]> {
  return Promise.all(
    leases.map((lease) =>
      fetch(table, { ...request, lease }).catch((error: unknown) => {
        if (error instanceof LeaseLostError) return undefined;
        throw error;
      }),
    ),
  );
}
