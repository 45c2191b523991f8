import type { ChildProcess } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { StoreError, Tidemill } from '../../src/index.js';
import { WorkerProcesses } from './worker-processes.js';
import { random, sleep, type ChaosDatabase } from './chaos-database.js';
import { readLines, writeLine } from './journal.js';
import { harmOnRecord, killedInside, runsOf, violations } from './judge.js';
import { isLimited, LIMITED_NAMES, limitViolations, reachedLimits } from './limited.js';
import { limited, PATIENCE_MS, reached, stalledMs, thenEnd } from './limits.js';

export interface ChaosOptions {
  readonly database: ChaosDatabase;
  readonly workers: number;
  /** An upper bound. */
  readonly jobs: number;
  /** How long faults are injected; the remaining work must finish afterwards. */
  readonly harmMs: number;
  readonly leaseMs?: number;
  readonly say?: (line: string) => void;
}

export interface ChaosReport {
  readonly accepted: number;
  readonly completed: number;
  /** Jobs that had not ended a minute after the last fault, with what is known of them. */
  readonly unfinished: readonly unknown[];
  readonly runs: number;
  readonly harm: Readonly<Record<string, number>>;
  readonly violations: readonly string[];
  /** The most runs at once, and the most starts in a window, of names with limits. */
  readonly reached: ReturnType<typeof reachedLimits>;
  /** Effects of jobs that complete inside their transaction: exactly one each. */
  readonly exact: { readonly jobs: number; readonly effects: number; readonly distinct: number };
}

/** The minimum, however slow the machine is. */
const FEWEST_JOBS = 2_000;
const WORKER = new URL('worker.ts', import.meta.url);

/** Runs of names with limits are longer, so that more of them are due than may run. */
const LIMITED_MS = 120;

/** Those whose limits a run must have reached come twice. */
const LIMITED_TURNS = [...LIMITED_NAMES, 'capped', 'paced'];

/** One job in twenty is long, and one in six has limits. */
function nameOf(n: number): string {
  if (n % 20 === 0) return 'long';
  const limited = LIMITED_TURNS[Math.floor(n / 6) % LIMITED_TURNS.length] ?? '';
  return ['short', 'short', limited, 'keyed', 'keyed', 'exact'][n % 6] ?? 'short';
}

function keyOf(name: string): { readonly key?: string; readonly uniqueKey?: string } {
  if (isLimited(name)) return { key: `key-${String(random(3))}` };
  return name === 'keyed' ? { uniqueKey: `key-${String(random(10))}` } : {};
}

/** Kills, freezes and restarts workers and injects faults into the server while jobs keep coming. */
class Chaos {
  readonly #options: ChaosOptions;
  readonly #leaseMs: number;
  readonly #file = join(mkdtempSync(join(tmpdir(), 'tidemill-chaos-')), 'effects.log');
  readonly #mill: Tidemill;
  readonly #processes: WorkerProcesses;
  readonly #harm: Record<string, number> = {};
  #harming = true;
  /** Kill the next process that is inside a transaction. */
  #aims = true;
  /** A process was killed inside a transaction. */
  #hasHit = false;
  #ending = false;

  constructor(options: ChaosOptions) {
    this.#options = options;
    this.#leaseMs = options.leaseMs ?? 2_000;
    this.#mill = new Tidemill({ store: options.database.open(), logger: false });
    this.#processes = new WorkerProcesses(
      WORKER,
      () => [options.database.address, this.#file, this.#leaseMs],
      (child) => this.#inside(child),
    );
  }

  run(): Promise<ChaosReport> {
    return thenEnd(
      () => this.#judged(),
      () => this.#end(),
    );
  }

  async #judged(): Promise<ChaosReport> {
    const { database, workers, harmMs } = this.#options;
    this.#processes.start(workers);
    const limitMs = harmMs + PATIENCE_MS;
    const hit = reached('a kill inside a transaction', () => this.#hasHit, limitMs);
    const ended = Promise.all([sleep(harmMs), hit]).then(() => (this.#harming = false));
    const produced = limited('every job to be accepted', this.#produce(), limitMs);
    const harm = { going: () => this.#harming, done: (what: string) => this.#done(what) };
    const harmed = limited('the end of the harm to the server', database.harm(harm), limitMs);
    await Promise.all([produced, this.#harmWorkers(), harmed, ended]);
    const unfinished = await this.#finish();
    return limited('the report', this.#report(await produced, unfinished));
  }

  #done(what: string): void {
    this.#harm[what] = (this.#harm[what] ?? 0) + 1;
    this.#options.say?.(what);
  }

  async #harmWorkers(): Promise<void> {
    while (this.#harming) {
      await sleep(300 + random(900));
      const victim = this.#processes.anyone();
      if (victim?.pid === undefined) continue;
      const [dice, pid] = [Math.random(), victim.pid];
      if (dice < 0.2) this.#aims = true;
      else if (dice < 0.4) this.#signal(victim, pid, 'kill');
      else if (dice < 0.75)
        void this.#freeze(victim, pid, dice < 0.6 ? this.#leaseMs * 1.6 : this.#leaseMs / 4);
      else {
        this.#done('restart');
        victim.kill('SIGTERM');
      }
    }
  }

  #inside(child: ChildProcess): void {
    if (!this.#aims || !this.#harming || child.pid === undefined) return;
    this.#signal(child, child.pid, 'kill');
    // The process may have ended its transaction just before the kill.
    this.#hasHit ||= killedInside(readLines(this.#file)) > 0;
    this.#aims = !this.#hasHit;
  }

  #signal(victim: ChildProcess, pid: number, what: 'kill' | 'stop' | 'cont'): void {
    writeLine(this.#file, { what, pid });
    victim.kill(({ kill: 'SIGKILL', stop: 'SIGSTOP', cont: 'SIGCONT' } as const)[what]);
    if (what !== 'cont') this.#done(what);
  }

  async #freeze(victim: ChildProcess, pid: number, forMs: number): Promise<void> {
    this.#signal(victim, pid, 'stop');
    await sleep(forMs);
    this.#signal(victim, pid, 'cont');
  }

  /**
   * Enqueues while faults are injected, and at least a minimum. A call whose outcome is unknown is repeated with the
   * same id.
   */
  async #produce(): Promise<Map<string, string>> {
    const accepted = new Map<string, string>();
    const { jobs, harmMs } = this.#options;
    for (let n = 0; n < jobs && (this.#harming || n < FEWEST_JOBS); n += 1) {
      await this.#ask(n, accepted);
      if (n % 20 === 0) await sleep((harmMs / jobs) * 10);
    }
    return accepted;
  }

  async #ask(n: number, accepted: Map<string, string>): Promise<void> {
    const name = nameOf(n);
    const ms = name === 'long' ? 300 + random(this.#leaseMs) : random(isLimited(name) ? LIMITED_MS : 25);
    const key = keyOf(name);
    const data = { ms, failures: random(3), ...key };
    const id = `job-${String(n)}`;
    while (!this.#ending) {
      try {
        const job = await this.#mill.enqueue(name, data, { id, ...key });
        if (job.id === id) {
          accepted.set(id, name);
          writeLine(this.#file, {
            what: 'accepted',
            id,
            ...(name === 'keyed' ? { key: job.uniqueKey ?? '' } : {}),
            ...(isLimited(name) ? { due: job.runAt.getTime() } : {}),
          });
        }
        return;
      } catch (error) {
        if (!(error instanceof StoreError && error.transient)) throw error;
        await sleep(100);
      }
    }
  }

  /** Waits until no work is left, or until nothing has moved for a long time. Returns what was left. */
  async #finish(): Promise<readonly unknown[]> {
    const left = (): Promise<readonly unknown[]> =>
      this.#mill.jobs.find({ status: ['pending', 'processing'] }).then(
        ({ items }) => items,
        () => [null],
      );
    let [completed, since] = [-1, Date.now()];
    while (Date.now() - since < stalledMs()) {
      if ((await limited('the list of unfinished jobs', left())).length === 0) return [];
      const count = this.#mill.jobs.count({ status: 'completed' }).catch(() => completed);
      const now = await limited('the number of completed jobs', count);
      if (now !== completed) [completed, since] = [now, Date.now()];
      await sleep(100);
    }
    return left();
  }

  async #report(accepted: Map<string, string>, unfinished: readonly unknown[]): Promise<ChaosReport> {
    const effects = await this.#options.database.effects();
    const completed = await this.#mill.jobs.count({ status: 'completed' });
    const lines = readLines(this.#file);
    const runs = runsOf(lines);
    return {
      accepted: accepted.size,
      completed,
      unfinished,
      runs: runs.length,
      harm: { ...this.#harm, ...harmOnRecord(lines) },
      violations: [...violations(lines, this.#leaseMs), ...limitViolations(lines, runs, this.#leaseMs)],
      reached: reachedLimits(runs),
      exact: {
        jobs: [...accepted.values()].filter((name) => name === 'exact').length,
        effects: effects.length,
        distinct: new Set(effects).size,
      },
    };
  }

  async #end(): Promise<void> {
    this.#ending = true;
    this.#harming = false;
    this.#processes.end();
    await limited('the producer to stop', this.#mill.stop());
    await limited('the database to be dropped', this.#options.database.clear());
  }
}

export const runChaos = (options: ChaosOptions): Promise<ChaosReport> => new Chaos(options).run();
