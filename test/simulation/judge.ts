import type { FailureKind } from '../../src/core/records/work.js';
import type { Lease, SettleAnswer } from '../../src/store/port.js';
import { LimitJudge, type LimitedJob } from './limits.js';
import type { SimulatedProcess } from './process.js';
import type { Scheduler } from './scheduler.js';

/** What the judge needs to know of an end, for any kind of work. */
export interface Ending {
  readonly lease: Lease;
  readonly by: 'holder' | 'reclaimer';
  readonly status: string;
  /** Why an attempt is charged, if it is; `nothing`: without a reason. */
  readonly charge: FailureKind | 'nothing' | undefined;
  /** When it is due again, if that changes. */
  readonly dueAt?: Date | undefined;
}

/** Work, as a claim reads it. */
export interface Claimed {
  readonly id: string;
  readonly name: string;
  /** Failed attempts so far. */
  readonly charges: number;
}

interface Item {
  readonly name: string;
  /** The token under which it is held. */
  token: string | undefined;
  /** The token that last ended it. */
  endedBy: string | undefined;
  status: string;
  /** How many attempts were charged. */
  charges: number;
  readonly uniqueKey: string | undefined;
}

/** An instance from its start to its end, as the store knows it. */
interface Life {
  readonly process: SimulatedProcess;
  readonly heardAt: number;
  /** When it was declared dead: what happened later is no excuse for its silence. */
  fencedAt?: number;
}

interface Run {
  readonly process: SimulatedProcess;
  readonly signal: AbortSignal;
}

/** A shorter outage may fall between two renewals. */
const NOTICED_MS = 2_000;
const FINISHED: ReadonlySet<string> = new Set(['completed', 'failed', 'cancelled']);

/**
 * Sees every write that reaches the store, in order, and every handler that begins and ends. Records what must never
 * happen.
 */
export class Judge {
  readonly violations: string[] = [];
  readonly limits: LimitJudge;
  readonly #scheduler: Scheduler;
  readonly #leaseMs: number;
  readonly #items = new Map<string, Item>();
  readonly #runs = new Map<string, Set<Run>>();
  readonly #lives = new Map<string, Life>();
  readonly #outages: { readonly from: number; to: number }[] = [];
  readonly #counts = new Map<string, number>();
  /** Handlers that failed and were not charged yet, by work and process. */
  readonly #failures = new Map<string, number>();

  constructor(scheduler: Scheduler, leaseMs: number) {
    this.#scheduler = scheduler;
    this.#leaseMs = leaseMs;
    this.limits = new LimitJudge({
      now: () => scheduler.now,
      violated: (what) => this.violated(what),
      count: (what) => this.count(what),
    });
  }

  /** How often each kind of event was seen. */
  get counts(): ReadonlyMap<string, number> {
    return this.#counts;
  }

  get items(): ReadonlyMap<string, Readonly<Item>> {
    return this.#items;
  }

  violated(what: string): void {
    this.#scheduler.trace.add(`VIOLATION ${what}`);
    this.violations.push(`${String(this.#scheduler.now)}: ${what}`);
  }

  count(what: string): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + 1);
  }

  outage(from: number, to: number): void {
    this.#outages.push({ from, to });
  }

  /** The store is back, for good. */
  outagesOver(): void {
    for (const one of this.#outages) one.to = Math.min(one.to, this.#scheduler.now);
  }

  /** The store heard from a life. */
  heard(life: string, process: SimulatedProcess): void {
    this.#lives.set(life, { process, heardAt: this.#scheduler.now });
  }

  /** Others declared a life dead. */
  fenced(life: string): void {
    const known = this.#lives.get(life);
    if (known !== undefined) known.fencedAt ??= this.#scheduler.now;
  }

  /** A life ended in order: others find what it could not record by then, as after a crash. */
  left(life: string): void {
    this.#lives.delete(life);
  }

  created(job: LimitedJob & { readonly uniqueKey?: string; readonly leaseToken?: string }): void {
    const { id, name, uniqueKey, leaseToken: token } = job;
    this.count('created');
    if (uniqueKey !== undefined)
      for (const [other, item] of this.#items)
        if (item.name === name && item.uniqueKey === uniqueKey && !FINISHED.has(item.status))
          this.violated(`two live jobs ${name} with the unique key ${uniqueKey}: ${other} and ${id}`);
    const status = token === undefined ? 'pending' : 'processing';
    this.#items.set(id, { name, token, endedBy: undefined, status, charges: 0, uniqueKey });
    this.limits.created(job, token !== undefined);
  }

  claimed(works: readonly Claimed[], token: string): void {
    for (const { id, name, charges } of works) {
      this.count('claimed');
      this.#scheduler.trace.add(`claimed ${id} under ${token}`);
      const item = this.#items.get(id) ?? {
        name,
        token: undefined,
        endedBy: undefined,
        status: '',
        charges: 0,
        uniqueKey: undefined,
      };
      if (item.token !== undefined)
        this.violated(`${name} ${id} was claimed under ${token} while ${item.token} held it`);
      if (charges > item.charges)
        this.violated(
          `${name} ${id} counts ${String(charges)} failed attempts, and ${String(item.charges)} were charged`,
        );
      this.#items.set(id, Object.assign(item, { token, status: 'processing' }));
      this.limits.claimed(id);
    }
  }

  settled(ending: Ending, answer: SettleAnswer): void {
    if (answer !== 'settled') return;
    const { lease, by, status } = ending;
    const item = this.#items.get(lease.id);
    if (item === undefined) return;
    if (item.token === lease.token) {
      this.count(by === 'reclaimer' ? `reclaimed ${status}` : `settled ${status}`);
      if (ending.charge !== undefined) this.#charged(item, ending);
      Object.assign(item, { token: undefined, endedBy: lease.token, status });
      this.limits.settled(lease.id, status, ending.dueAt?.getTime());
    } else if (by !== 'holder' || item.endedBy !== lease.token)
      this.violated(
        `${item.name} ${lease.id}: a stale holder (${String(lease.token)}) wrote its end as ${status}`,
      );
  }

  /** `byTime`: held by a lock that is a time in the document, which is only as good as the clocks of its holders. */
  began(id: string, process: SimulatedProcess, signal: AbortSignal, byTime = false): () => void {
    this.count('runs');
    this.limits.began(id);
    this.#scheduler.trace.add(`${String(this.#scheduler.now)} ${process.name} begins ${id}`);
    const runs = this.#runs.get(id) ?? new Set();
    for (const other of runs)
      if (
        !other.process.isDead &&
        !other.process.isPaused &&
        !other.signal.aborted &&
        !(byTime && (other.process.wasSkewed || process.wasSkewed))
      )
        this.violated(
          `${id} began on ${process.name} while it ran on ${other.process.name}, which still holds it`,
        );
    const run = { process, signal };
    this.#runs.set(id, runs.add(run));
    return () => {
      this.#scheduler.trace.add(`${String(this.#scheduler.now)} ${process.name} ends ${id}`);
      runs.delete(run);
    };
  }

  /** A handler has thrown, for whatever reason. */
  failed(id: string, process: SimulatedProcess): void {
    const key = `${process.name} ${id}`;
    this.#failures.set(key, (this.#failures.get(key) ?? 0) + 1);
  }

  /** It died, is suspended, was silent by itself a moment ago, or was declared dead: it may act on what it knew then. */
  mayBeBehind(process: SimulatedProcess): boolean {
    const since = this.#scheduler.now - this.#leaseMs;
    if (process.isDead || process.wasTroubledSince(since)) return true;
    return [...this.#lives.values()].some(
      (life) => life.process === process && (life.fencedAt ?? 0) >= since,
    );
  }

  /** An attempt is charged for what its handler did, or for the death of its process. */
  #charged(item: Item, ending: Ending): void {
    const { charge, by, lease } = ending;
    item.charges += 1;
    this.count(`charged ${String(charge)}`);
    if (charge === 'crashed' && by === 'reclaimer') this.#chargedCrash(item, ending);
    else if (charge !== 'error' || !this.#isFailure(lease))
      this.violated(`${item.name} ${lease.id} was charged (${String(charge)}), and its handler did not fail`);
  }

  #isFailure({ id, token }: Lease): boolean {
    const process = this.#lives.get(lifeOf(token))?.process;
    // A life that has left is no longer known.
    if (process === undefined) return true;
    const key = `${process.name} ${id}`;
    const count = this.#failures.get(key) ?? 0;
    this.#failures.set(key, count - 1);
    return count > 0;
  }

  /** A crash may only be counted against a process that died, or that was silent for a lease by itself. */
  #chargedCrash({ name }: Item, { lease }: Ending): void {
    const life = this.#lives.get(lifeOf(lease.token));
    if (life === undefined || life.process.isDead || life.process.wasTroubledSince(life.heardAt)) return;
    const until = life.fencedAt ?? this.#scheduler.now;
    const silent = until - life.heardAt - this.#outageBetween(life.heardAt, until);
    if (silent < this.#leaseMs)
      this.violated(
        `${name} ${lease.id} was charged a crash, but ${life.process.name} lives and was silent for ${String(silent)} ms apart from an outage`,
      );
  }

  /**
   * Outages, and the time to recover after those that others notice as well: a process that was heard after one has
   * recovered.
   */
  #outageBetween(from: number, to: number): number {
    const parts = this.#outages
      .filter((one) => one.to > from)
      .map((one) => {
        const graceMs = one.to - one.from < NOTICED_MS ? 0 : this.#leaseMs;
        return Math.max(0, Math.min(to, one.to + graceMs) - Math.max(from, one.from));
      });
    return parts.reduce((sum, part) => sum + part, 0);
  }
}

/** Tokens begin with the life that created them. */
const lifeOf = (token: string | null): string => token?.split('.')[0] ?? '';
