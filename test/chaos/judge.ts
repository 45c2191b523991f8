import type { Line } from './journal.js';

export interface Run {
  readonly id: string;
  /** Of a name with limits: the name, its key, and the server's time of the claim. */
  readonly name?: string;
  readonly limitKey?: string;
  readonly claimedAt?: number;
  readonly pid: number;
  readonly start: number;
  /** Infinity if the attempt was cut off. */
  end: number;
}

/** The attempts that handlers actually made, from the effects log. */
export function runsOf(lines: readonly Line[]): Run[] {
  const open = new Map<string, Run>();
  const runs: Run[] = [];
  for (const line of lines) {
    const key = `${String(line.pid)}/${line.id ?? ''}/${String(line.attempt)}`;
    if (line.what === 'start') {
      const { name, limitKey, claimedAt } = line;
      const limited =
        name === undefined || limitKey === undefined || claimedAt === undefined
          ? {}
          : { name, limitKey, claimedAt };
      const run = { id: line.id ?? '', pid: line.pid, start: line.at, end: Infinity, ...limited };
      open.set(key, run);
      runs.push(run);
    } else if (line.what === 'end') {
      const run = open.get(key);
      if (run !== undefined) run.end = line.at;
    }
  }
  return runs;
}

/** True if the earlier holder's lease had really ended: it was killed, silent for most of a lease, or told so. */
export function leaseHadEnded(lines: readonly Line[], earlier: Run, later: Run, leaseMs: number): boolean {
  const own = lines.filter((line) => line.pid === earlier.pid);
  if (own.some((line) => line.what === 'kill' && line.at <= later.start)) return true;
  if (own.some((line) => line.what === 'lost' && line.at >= earlier.start)) return true;
  const stopped = own.filter((line) => line.what === 'stop' && line.at <= later.start);
  return stopped.some((stop) => {
    const cont = own.find((line) => line.what === 'cont' && line.at > stop.at)?.at ?? Infinity;
    return Math.min(cont, later.start) - stop.at >= leaseMs / 2;
  });
}

/** Runs that began while `most` others of their group ran whose lease had not ended. */
export function overlaps(lines: readonly Line[], group: readonly Run[], leaseMs: number, most = 1): string[] {
  const sorted = [...group].sort((a, b) => a.start - b.start);
  return sorted.flatMap((later, index) => {
    const others = sorted
      .slice(0, index)
      .filter((earlier) => earlier.end > later.start && !leaseHadEnded(lines, earlier, later, leaseMs));
    if (others.length < most) return [];
    return others.map(
      (earlier) =>
        `${later.id} ran on ${String(later.pid)} at ${String(later.start)} while ${earlier.id} ran on ${String(earlier.pid)} ` +
        `from ${String(earlier.start)} to ${String(earlier.end)}` +
        (most === 1 ? '' : `, and ${String(most)} may run at once`),
    );
  });
}

/** Faults that only the log records. */
export function harmOnRecord(lines: readonly Line[]): Readonly<Record<string, number>> {
  const count = (wanted: Line['what']): number => lines.filter(({ what }) => what === wanted).length;
  const [usedUp, undivided] = [count('used up'), count('undivided')];
  return {
    'kill inside a transaction': killedInside(lines),
    ...(usedUp === 0 ? {} : { 'pool used up': usedUp }),
    ...(undivided === 0 ? {} : { 'leader killed between two numbers of partitions': undivided }),
  };
}

/** How many processes were killed while they had an open transaction that completes work. */
export function killedInside(lines: readonly Line[]): number {
  const open = new Map<number, Set<string>>();
  let count = 0;
  for (const { what, pid, id = '' } of lines) {
    const ids = open.get(pid) ?? new Set();
    if (what === 'inside') open.set(pid, ids.add(id));
    else if (what === 'outside') ids.delete(id);
    else if (what === 'kill' && ids.size > 0) count += 1;
  }
  return count;
}

export const overdue = (lines: readonly Line[]): string[] =>
  lines.flatMap(({ what, pid }) => (what === 'overdue' ? [`${String(pid)} did not come to its end`] : []));

/** Everything that contradicts the guarantees; empty if they were kept. */
export function violations(lines: readonly Line[], leaseMs: number): string[] {
  const runs = runsOf(lines);
  const accepted = lines.filter((line) => line.what === 'accepted');
  const keyOf = new Map(accepted.map((line) => [line.id ?? '', line.key]));
  const byId = groupBy(runs, (run) => run.id);
  const byKey = groupBy(
    runs.filter((run) => keyOf.get(run.id) !== undefined),
    (run) => keyOf.get(run.id) ?? '',
  );
  const settled = groupBy(
    lines.filter((line) => line.what === 'settled'),
    (line) => line.id ?? '',
  );
  return [
    ...overdue(lines),
    ...[...settled].filter(([, all]) => all.length > 1).map(([id]) => `${id} was settled twice`),
    ...[...byId.values()].flatMap((group) => overlaps(lines, group, leaseMs)),
    ...[...byKey.values()].flatMap((group) => overlaps(lines, group, leaseMs)),
  ];
}

function groupBy<T>(items: readonly T[], key: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(key(item));
    if (group === undefined) groups.set(key(item), [item]);
    else group.push(item);
  }
  return groups;
}
