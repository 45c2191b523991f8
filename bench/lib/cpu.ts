import { readFileSync } from 'node:fs';

const TICKS_PER_SECOND = 100;
/** Positions in /proc/<pid>/stat, after the command name: a process's own times, and those of its ended children. */
const OWN = 11;
const ENDED = 13;

const fieldsOf = (pid: number | undefined): string[] =>
  readFileSync(`/proc/${String(pid)}/stat`, 'utf8')
    .split(') ')[1]
    ?.split(' ') ?? [];

const times = (fields: readonly string[], at: number): number =>
  (Number(fields[at]) + Number(fields[at + 1])) / TICKS_PER_SECOND;

/** The children of PostgreSQL are its connections, which come and go. */
function ofChildren(pid: number | undefined): number {
  const children = readFileSync(`/proc/${String(pid)}/task/${String(pid)}/children`, 'utf8');
  return (
    children
      .split(' ')
      .filter((child) => child !== '')
      // A child that ends at this moment is counted by its parent the next time.
      .reduce((sum, child) => sum + (cpuSeconds(Number(child)) || 0), 0)
  );
}

/** CPU seconds that a process and its children have used so far; NaN if the system does not tell. */
export function cpuSeconds(pid: number | undefined): number {
  try {
    const fields = fieldsOf(pid);
    return times(fields, OWN) + times(fields, ENDED) + ofChildren(pid);
  } catch {
    return NaN;
  }
}
