import { readFileSync } from 'node:fs';

const TICKS_PER_SECOND = 100;

/** CPU seconds that a process has used so far; NaN where the system does not say. */
export function cpuSeconds(pid: number | undefined): number {
  try {
    const fields =
      readFileSync(`/proc/${String(pid)}/stat`, 'utf8')
        .split(') ')[1]
        ?.split(' ') ?? [];
    return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
  } catch {
    return NaN;
  }
}
