/** What PostgreSQL says of a statement that it ran: `explain (analyze, format json)`. */
export interface Plan {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Index Name'?: string;
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly 'Rows Removed by Index Recheck'?: number;
  readonly Plans?: readonly Plan[];
}

/** A scan of one of the tables, with the rows that it read, whether it kept them or not. */
export interface Scan {
  readonly plan: Plan;
  readonly rows: number;
}

/** All scans of these tables in a plan. */
export function scansOf(plan: Plan, tables: readonly string[]): readonly Scan[] {
  const below = (plan.Plans ?? []).flatMap((one) => scansOf(one, tables));
  if (!plan['Node Type'].includes('Scan') || !tables.includes(plan['Relation Name'] ?? '')) return below;
  const removed = (plan['Rows Removed by Filter'] ?? 0) + (plan['Rows Removed by Index Recheck'] ?? 0);
  return [{ plan, rows: Math.round((plan['Actual Rows'] + removed) * plan['Actual Loops']) }, ...below];
}

export const rowsOf = (scans: readonly Scan[]): number => scans.reduce((sum, { rows }) => sum + rows, 0);
