import { appendFileSync, readFileSync } from 'node:fs';

/** One line of the effects log. Several processes append whole lines; time is the machine's monotonic clock. */
export interface Line {
  readonly at: number;
  readonly pid: number;
  readonly what:
    | 'start'
    | 'end'
    | 'settled'
    | 'lost'
    | 'kill'
    | 'stop'
    | 'cont'
    | 'accepted'
    /** A transaction that completes work has begun to write, and is about to be committed. */
    | 'inside'
    | 'outside'
    | 'handled'
    /** A leader was killed after it had announced another number of partitions, and before that was in force. */
    | 'undivided'
    /** A process took every connection of its own pool. */
    | 'used up'
    /** A stop that did not end. */
    | 'overdue';
  readonly id?: string;
  readonly key?: string;
  readonly attempt?: number;
  /** Of a job with limits: its name, its key, and the server's time of its claim. */
  readonly name?: string;
  readonly limitKey?: string;
  readonly claimedAt?: number;
  /** When an accepted job with limits was due. */
  readonly due?: number;
  /** The version of a document. */
  readonly version?: number;
}

const monotonicMs = (): number => Number(process.hrtime.bigint() / 1_000_000n);

export function writeLine(file: string, line: Omit<Line, 'at' | 'pid'> & { pid?: number }): void {
  appendFileSync(file, `${JSON.stringify({ at: monotonicMs(), pid: process.pid, ...line })}\n`);
}

export function readLines(file: string): Line[] {
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter((text) => text !== '')
    .map((text) => JSON.parse(text) as Line);
}
