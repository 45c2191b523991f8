import { readFileSync } from 'node:fs';

const TICKS_PER_SECOND = 100;
/** Where a process's own times begin in its line of /proc, and those of its children that have ended. */
const OWN = 11;
const ENDED = 13;

const fieldsOf = (pid: number | undefined): string[] =>
  readFileSync(`/proc/${String(pid)}/stat`, 'utf8')
    .split(') ')[1]
    ?.split(' ') ?? [];

const times = (fields: readonly string[], at: number): number =>
  (Number(fields[at]) + Number(fields[at + 1])) / TICKS_PER_SECOND;

/** Those of PostgreSQL are its connections, which come and go. */
function ofChildren(pid: number | undefined): number {
  const children = readFileSync(`/proc/${String(pid)}/task/${String(pid)}/children`, 'utf8');
  return (
    children
      .split(' ')
      .filter((child) => child !== '')
      // One that ends at this moment is counted by its parent the next time.
      .reduce((sum, child) => sum + (cpuSeconds(Number(child)) || 0), 0)
  );
}

/** CPU seconds that a process and its children have used so far; NaN where the system does not say. */
export function cpuSeconds(pid: number | undefined): number {
  try {
    const fields = fieldsOf(pid);
    return times(fields, OWN) + times(fields, ENDED) + ofChildren(pid);
  } catch {
    return NaN;
  }
}
