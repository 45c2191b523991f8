import { fork, type ChildProcess } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { MongoServer } from '@tidemill/servers';
import { MongoClient, type Document } from 'mongodb';
import { readLines } from './journal.js';
import { writeOnce, type Doc } from './reactive-writer.js';

export interface ReactiveChaosOptions {
  readonly server: MongoServer;
  readonly workers: number;
  readonly documents: number;
  /** How long documents are written and harm is done; afterwards the last states have to be handled. */
  readonly harmMs: number;
  /** How often somebody is harmed, about. Often, and there is hardly ever time to work. */
  readonly everyMs?: number;
  readonly leaseMs?: number;
}

export interface ReactiveChaosReport {
  /** Documents that match at the end, and how many runs there were. */
  readonly matching: number;
  readonly runs: number;
  readonly harm: Readonly<Record<string, number>>;
  /** Documents whose last state was not handled, though nothing moves any more. */
  readonly unhandled: readonly string[];
  /** Tasks that had not ended. */
  readonly stuck: readonly Document[];
}

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const random = (limit: number): number => Math.floor(Math.random() * limit);
/** A busy machine is slow, but never still: longer than this without a run means that work is stuck. */
const STALLED_MS = 30_000;
const WORKER = fileURLToPath(new URL('reactive-worker.ts', import.meta.url));

/** Processes that write and work, killed and frozen at random, leaders first, while the primary comes and goes. */
class ReactiveChaos {
  readonly #options: ReactiveChaosOptions;
  readonly #leaseMs: number;
  readonly #file = join(mkdtempSync(join(tmpdir(), 'tidemill-reactive-')), 'effects.log');
  readonly #uri: string;
  readonly #client: MongoClient;
  readonly #children = new Set<ChildProcess>();
  readonly #harm: Record<string, number> = {};
  #leader: ChildProcess | undefined;
  #harming = true;
  #ending = false;

  constructor(options: ReactiveChaosOptions) {
    this.#options = options;
    this.#leaseMs = options.leaseMs ?? 1_000;
    this.#uri = options.server.uri.replace('/?', `/chaos_${String(Date.now())}?`);
    this.#client = new MongoClient(this.#uri);
    writeFileSync(this.#file, '');
  }

  async run(): Promise<ReactiveChaosReport> {
    try {
      for (let n = 0; n < this.#options.workers; n += 1) this.#spawn();
      while (this.#leader === undefined) await sleep(50);
      const ended = sleep(this.#options.harmMs).then(() => (this.#harming = false));
      await Promise.all([this.#write(), this.#harmWorkers(), this.#harmServer(), ended]);
      for (const child of this.#children) child.send('quiet', () => undefined);
      return await this.#finish();
    } finally {
      this.#ending = true;
      for (const child of this.#children) child.kill('SIGKILL');
      await this.#client.db().dropDatabase();
      await this.#client.close();
    }
  }

  #spawn(): void {
    const { documents } = this.#options;
    const args = [this.#uri, this.#file, this.#leaseMs, documents, this.#harming ? 'yes' : 'no'].map(String);
    const child = fork(WORKER, args, {
      execArgv: ['--import', 'tsx'],
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    this.#children.add(child);
    child.on('message', () => (this.#leader = child));
    child.once('exit', () => {
      this.#children.delete(child);
      if (!this.#ending) this.#spawn();
    });
  }

  /** One writer is never killed, so that there is always something to follow. */
  async #write(): Promise<void> {
    const docs = this.#client.db().collection<Doc>('docs');
    while (this.#harming) {
      await writeOnce(docs, this.#options.documents);
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
      const leader = [...this.#children].find((child) => child === this.#leader);
      const other = [...this.#children][random(this.#children.size)];
      const victim = Math.random() < 0.5 ? (leader ?? other) : other;
      if (victim === undefined) continue;
      const who = victim === leader ? 'leader' : 'worker';
      const dice = Math.random();
      if (dice < 0.6) {
        this.#done(`${who} killed`);
        victim.kill('SIGKILL');
      } else if (dice < 0.8) {
        this.#done(`${who} frozen`);
        victim.kill('SIGSTOP');
        setTimeout(() => victim.kill('SIGCONT'), this.#leaseMs * 1.6);
      } else {
        this.#done(`${who} stopped`);
        victim.kill('SIGTERM');
      }
    }
  }

  /** Only a set of three can lose its primary and go on. */
  async #harmServer(): Promise<void> {
    const { server } = this.#options;
    if (server.members.length < 3) return;
    for (let round = 0; this.#harming; round += 1) {
      await sleep(3_000);
      const primary = await server.primary();
      if (round % 3 === 2) {
        this.#done('primary killed');
        primary.kill('SIGKILL');
        await sleep(2_000);
        await primary.restart();
      } else {
        this.#done('step down');
        const command = { replSetStepDown: 3, secondaryCatchUpPeriodSecs: 1, force: true };
        await this.#client
          .db('admin')
          .command(command)
          .catch(() => undefined);
      }
    }
  }

  /** Waits until every last state was handled, or nothing has moved for a long time. */
  async #finish(): Promise<ReactiveChaosReport> {
    let [report, since] = [await this.#report(), Date.now()];
    while (report.unhandled.length + report.stuck.length > 0 && Date.now() - since < STALLED_MS) {
      await sleep(200);
      const next = await this.#report().catch(() => report);
      const moved = next.runs !== report.runs || next.stuck.length !== report.stuck.length;
      if (moved) since = Date.now();
      report = next;
    }
    return report;
  }

  async #report(): Promise<ReactiveChaosReport> {
    const db = this.#client.db();
    const matching = await db
      .collection<{ _id: number; version: number }>('docs')
      .find({ active: true })
      .toArray();
    const handled = readLines(this.#file).filter((line) => line.what === 'handled');
    const states = new Set(handled.map((line) => `${line.id ?? ''}@${String(line.version)}`));
    return {
      matching: matching.length,
      runs: handled.length,
      harm: this.#harm,
      unhandled: matching
        .map(({ _id, version }) => `${String(_id)}@${String(version)}`)
        .filter((state) => !states.has(state)),
      stuck: await db
        .collection('docs_tasks')
        .find({ status: { $nin: ['completed', 'failed'] } })
        .limit(20)
        .toArray(),
    };
  }
}

export const runReactiveChaos = (options: ReactiveChaosOptions): Promise<ReactiveChaosReport> =>
  new ReactiveChaos(options).run();
