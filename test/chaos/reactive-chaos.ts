import type { ChildProcess } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Tidemill } from '../../src/index.js';
import { WorkerProcesses } from './worker-processes.js';
import { documentsAt, VERSIONS, writeOnce, type Documents } from './documents.js';
import { random, sleep, type ChaosDatabase } from './chaos-database.js';
import { readLines, writeLine } from './journal.js';
import { harmOnRecord, overdue } from './judge.js';
import { limited, PATIENCE_MS, reached, stalledMs, thenEnd } from './limits.js';

export interface ReactiveChaosOptions {
  readonly database: ChaosDatabase;
  readonly workers: number;
  readonly documents: number;
  /** How long documents are written and faults are injected; the last states must be handled afterwards. */
  readonly harmMs: number;
  /** About how often a fault is injected. If it is short, there is hardly ever time to work. */
  readonly everyMs?: number;
  readonly leaseMs?: number;
  /** The numbers of partitions that workers are set to, one after the other, each for an equal part of the time. */
  readonly partitions?: readonly number[];
}

export interface ReactiveChaosReport {
  /** Documents that match at the end, the number of runs, and the number of effects of transactions. */
  readonly matching: number;
  readonly runs: number;
  readonly effects: number;
  readonly harm: Readonly<Record<string, number>>;
  /** Documents whose last state was not handled by one of the tasks although nothing moves any more. */
  readonly unhandled: readonly string[];
  /** States whose effect was written twice although its transaction also completes the task. */
  readonly twice: readonly string[];
  /** Tasks that had not ended. */
  readonly stuck: readonly unknown[];
  readonly violations: readonly string[];
}

/** While workers are replaced by some with another number of partitions, the next one follows this much later. */
const ROLLOUT_MS = 300;

const WORKER = new URL('reactive-worker.ts', import.meta.url);

/** Processes that write and work, killed and frozen at random, leaders first, while faults hit the server as well. */
class ReactiveChaos {
  readonly #options: ReactiveChaosOptions;
  readonly #leaseMs: number;
  readonly #file = join(mkdtempSync(join(tmpdir(), 'tidemill-reactive-')), 'effects.log');
  readonly #documents: Documents;
  readonly #mill: Tidemill;
  readonly #processes: WorkerProcesses;
  readonly #harm: Record<string, number> = {};
  /** The process that last said that it leads, by partition. */
  readonly #leaders = new Map<number, ChildProcess>();
  #partitions: number;
  #harming = true;

  constructor(options: ReactiveChaosOptions) {
    const { database, documents, leaseMs = 1_000, partitions: [first = 1] = [] } = options;
    this.#options = options;
    this.#partitions = first;
    this.#leaseMs = leaseMs;
    this.#documents = documentsAt(database.direct);
    this.#mill = new Tidemill({ store: database.open(), logger: false });
    const args = () => [
      database.address,
      this.#file,
      leaseMs,
      documents,
      this.#harming ? 'yes' : 'no',
      this.#partitions,
    ];
    this.#processes = new WorkerProcesses(WORKER, args, (child, partition) =>
      this.#leaders.set(Number(partition), child),
    );
    writeFileSync(this.#file, '');
  }

  run(): Promise<ReactiveChaosReport> {
    return thenEnd(
      () => this.#judged(),
      () => this.#end(),
    );
  }

  async #judged(): Promise<ReactiveChaosReport> {
    const { database, workers, harmMs } = this.#options;
    await limited('the first documents', this.#begin());
    this.#processes.start(workers);
    await reached('a leader of each partition', () => this.#leaders.size >= this.#partitions);
    const limitMs = harmMs + PATIENCE_MS;
    const ended = sleep(harmMs).then(() => (this.#harming = false));
    const harm = { going: () => this.#harming, done: (what: string) => this.#done(what) };
    const harmed = limited('the end of the harm to the server', database.harm(harm), limitMs);
    const written = limited('the last write', this.#write(), limitMs);
    await Promise.all([written, this.#harmWorkers(), this.#redivide(), harmed, ended]);
    this.#processes.tell('quiet');
    return this.#finish();
  }

  /** There is something to follow, however slow the machine is. */
  async #begin(): Promise<void> {
    for (let _id = 0; _id < this.#options.documents; _id += 1)
      await this.#documents.put({ _id, version: random(VERSIONS), active: true });
  }

  async #end(): Promise<void> {
    this.#harming = false;
    this.#processes.end();
    await limited('the judge to stop', Promise.all([this.#mill.stop(), this.#documents.close()]));
    await limited('the database to be dropped', this.#options.database.clear());
  }

  /** One writer is never killed, so that there is always something to follow. */
  async #write(): Promise<void> {
    while (this.#harming) {
      await writeOnce(this.#documents, this.#options.documents);
      await sleep(random(10));
    }
  }

  #done(what: string): void {
    this.#harm[what] = (this.#harm[what] ?? 0) + 1;
  }

  async #harmWorkers(): Promise<void> {
    const { everyMs = 4_000 } = this.#options;
    while (this.#harming) {
      await sleep(everyMs / 2 + random(everyMs));
      // Do not wait for a leader that is gone and has no successor yet.
      const leaders = [...this.#leaders.values()].filter((leader) => this.#processes.has(leader));
      const leader = leaders[random(leaders.length)];
      const victim = Math.random() < 0.5 ? (leader ?? this.#processes.anyone()) : this.#processes.anyone();
      if (victim !== undefined) this.#harmOne(victim);
    }
  }

  /** Kills the leader of the last partition, then replaces one worker after the other by one set to the next number. */
  async #redivide(): Promise<void> {
    const { partitions = [], harmMs } = this.#options;
    for (const next of partitions.slice(1)) {
      await sleep(harmMs / partitions.length);
      const last = (): ChildProcess | undefined => this.#leaderOf(this.#partitions - 1);
      await reached('a leader of the last partition', () => last() !== undefined);
      const leader = last();
      if (leader !== undefined) this.#kill(leader, 'leader of the last partition');
      this.#partitions = next;
      for (const worker of this.#processes.all) {
        worker.kill('SIGTERM');
        await sleep(ROLLOUT_MS);
      }
    }
  }

  #leaderOf(partition: number): ChildProcess | undefined {
    const leader = this.#leaders.get(partition);
    return leader !== undefined && this.#processes.has(leader) ? leader : undefined;
  }

  #nameOf(worker: ChildProcess): string {
    const [led] = [...this.#leaders].filter(([, leader]) => leader === worker);
    if (led === undefined) return 'worker';
    return led[0] === 0 ? 'leader' : 'leader of another partition';
  }

  #kill(victim: ChildProcess, who: string): void {
    this.#done(`${who} killed`);
    if (victim.pid !== undefined) writeLine(this.#file, { what: 'kill', pid: victim.pid });
    victim.kill('SIGKILL');
  }

  #harmOne(victim: ChildProcess): void {
    const who = this.#nameOf(victim);
    const dice = Math.random();
    if (dice < 0.6) this.#kill(victim, who);
    else if (dice < 0.8) {
      this.#done(`${who} frozen`);
      victim.kill('SIGSTOP');
      setTimeout(() => victim.kill('SIGCONT'), this.#leaseMs * 1.6);
    } else {
      this.#done(`${who} stopped`);
      victim.kill('SIGTERM');
    }
  }

  /** Waits until every last state was handled, or until nothing has moved for a long time. */
  async #finish(): Promise<ReactiveChaosReport> {
    let [report, since] = [await this.#look(), Date.now()];
    while (report.unhandled.length + report.stuck.length > 0 && Date.now() - since < stalledMs()) {
      await sleep(200);
      const next = await this.#look();
      if (moves(next) !== moves(report)) since = Date.now();
      report = next;
    }
    return report;
  }

  /** A connection from before the faults may turn out to be dead; the next look opens a new one. */
  async #look(): Promise<ReactiveChaosReport> {
    const end = performance.now() + PATIENCE_MS;
    for (;;) {
      try {
        return await limited('a look at the documents', this.#report());
      } catch (error) {
        if (performance.now() > end) throw error;
        await sleep(500);
      }
    }
  }

  async #report(): Promise<ReactiveChaosReport> {
    const unfinished = { status: ['pending', 'processing', 'processing_dirty'] as const };
    const { items: stuck } = await this.#mill.getReactiveTasks(unfinished, { limit: 20 });
    const states = (await this.#documents.matching()).map(({ _id, version }) => stateOf(_id, version));
    const lines = readLines(this.#file);
    const handled = lines.flatMap(({ what, id, version }) =>
      what === 'handled' ? [stateOf(id, version)] : [],
    );
    const effects = await this.#options.database.effects();
    return {
      matching: states.length,
      runs: handled.length,
      effects: effects.length,
      harm: { ...this.#harm, ...harmOnRecord(lines) },
      unhandled: [...missing('follow', states, handled), ...missing('exact', states, effects)],
      twice: repeated(effects),
      stuck,
      violations: overdue(lines),
    };
  }
}

const stateOf = (id: unknown, version: unknown): string => `${String(id)}@${String(version)}`;

function repeated(states: readonly string[]): string[] {
  const seen = new Set<string>();
  return states.filter((state) => seen.size === seen.add(state).size);
}

function missing(task: string, states: readonly string[], handled: readonly string[]): string[] {
  const seen = new Set(handled);
  return states.filter((state) => !seen.has(state)).map((state) => `${task} ${state}`);
}

const moves = ({ runs, effects, stuck }: ReactiveChaosReport): string =>
  `${String(runs)} ${String(effects)} ${String(stuck.length)}`;

export const runReactiveChaos = (options: ReactiveChaosOptions): Promise<ReactiveChaosReport> =>
  new ReactiveChaos(options).run();
