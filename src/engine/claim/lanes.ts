import type { Work } from '../../core/records/work.js';
import { isAlive, type Cluster, type Instance, type NameLimit } from '../../store/port.js';
import { HORIZON_MS, Prefetch } from './prefetch.js';

/** The most names in one claim; further names take turns. */
const NAMES_PER_CLAIM = 32;
/** How many busy slots count as free while only short work runs. */
const TURNOVER = 5;

/** The slots of an instance, shared by all kinds of work. */
export class Slots {
  readonly total: number;
  running = 0;

  constructor(total: number) {
    this.total = total;
  }

  get free(): number {
    return this.total - this.running;
  }
}

/** How long claimed work waits for a slot before it is handed back: four times what a buffer should take. */
const LONGEST_WAIT_MS = 4 * HORIZON_MS;

/** The settings of one name. */
export interface LaneOptions {
  readonly concurrency: number;
  /** If false, work of this name is claimed only for free slots. Default: true. */
  readonly ahead?: boolean;
}

interface Waiting<W> {
  readonly work: W;
  /** Monotonic time of the claim. */
  readonly since: number;
}

interface Lane<W> {
  readonly name: string;
  concurrency: number;
  mayTakeAhead: boolean;
  running: number;
  readonly buffer: Waiting<W>[];
  readonly prefetch: Prefetch;
}

export interface LaneRequest {
  readonly limits: ReadonlyMap<string, NameLimit>;
  readonly total: number;
}

/**
 * The slots of one engine, with one lane per name. Duties:
 * - decide what to claim: the free slots, plus what is worth prefetching; names without room are left out;
 * - buffer prefetched work and hand it out in turns, so that no name starves another;
 * - give up work that has waited too long or is no longer worth holding, so that other instances can run it.
 */
export class Lanes<W extends Work = Work> {
  readonly #lanes = new Map<string, Lane<W>>();
  readonly #slots: number;
  readonly #shared: Slots;
  #running = 0;
  #turn = 0;

  /** `shared` are the slots of the whole instance, across all kinds of work. */
  constructor(slots: number, shared: Slots = new Slots(slots)) {
    this.#slots = slots;
    this.#shared = shared;
  }

  /** Applies the current definitions. Names that are not among them are no longer claimed or started. */
  define(workers: ReadonlyMap<string, LaneOptions>): void {
    for (const lane of this.#lanes.values()) if (!workers.has(lane.name)) lane.concurrency = 0;
    for (const [name, { concurrency, ahead: mayTakeAhead = true }] of workers) {
      const lane = this.#lanes.get(name) ?? { name, running: 0, buffer: [], prefetch: new Prefetch() };
      this.#lanes.set(name, Object.assign(lane, { concurrency, mayTakeAhead }));
    }
  }

  get running(): number {
    return this.#running;
  }

  get buffered(): number {
    let count = 0;
    for (const lane of this.#lanes.values()) count += lane.buffer.length;
    return count;
  }

  /** True if it is worth claiming work of this name now. */
  hasRoom(name: string): boolean {
    const lane = this.#lanes.get(name);
    return lane !== undefined && wants(lane, this.#room());
  }

  /** What to claim: names with room, those known to be due first, the rest in turn. Null if no claim is worthwhile. */
  request(
    cluster: Cluster | undefined,
    self: Instance,
    due: ReadonlySet<string> = new Set(),
  ): LaneRequest | null {
    const free = this.#room();
    const inTurn = this.#inTurn().filter((lane) => wants(lane, free));
    if (inTurn.length === 0) return null;
    this.#turn += 1;
    const limits = new Map<string, NameLimit>();
    const first = inTurn.filter((lane) => due.has(lane.name));
    const rest = inTurn.filter((lane) => !due.has(lane.name));
    for (const lane of [...first, ...rest].slice(0, NAMES_PER_CLAIM)) {
      limits.set(lane.name, { max: room(lane, free), ...placeOf(lane.name, cluster, self) });
    }
    const most = [...limits.values()].reduce((sum, limit) => sum + limit.max, 0);
    const total = Math.min(most, this.#worthTaking(free));
    return total === 0 ? null : { limits, total };
  }

  /** Free slots that no buffered work can fill, plus what all slots together get done within the prefetch horizon. */
  #worthTaking(free: number): number {
    const lanes = [...this.#lanes.values()];
    const startable = lanes.reduce((sum, lane) => sum + Math.min(lane.buffer.length, freeIn(lane, free)), 0);
    const ahead = Math.max(0, ...lanes.map((lane) => aheadOf(lane, this.#slots)));
    return Math.max(0, free - startable) + Math.max(0, ahead - (this.buffered - startable));
  }

  /**
   * The number of free slots. If short work keeps all of them busy, a few count as free: otherwise its own buffer would
   * refill them forever, and no other name would get a turn.
   */
  #room(): number {
    const free = this.#free;
    if (free > 0) return free;
    const running = [...this.#lanes.values()].filter((lane) => lane.running > 0);
    const brisk = running.every((lane) => aheadOf(lane) > 0);
    return brisk ? Math.min(TURNOVER, this.#slots) : 0;
  }

  get #free(): number {
    return Math.min(this.#slots - this.#running, this.#shared.free);
  }

  /** Buffers claimed work. `now` is monotonic time. */
  accept(works: readonly W[], now: number): void {
    for (const work of works) this.#lanes.get(work.name)?.buffer.push({ work, since: now });
  }

  /**
   * Removes and returns work that has waited too long, or is no longer worth holding because runs of its name turned
   * out to be long. Such a name prefetches nothing until its runs are short again.
   */
  aged(now: number): readonly W[] {
    return [...this.#lanes.values()].flatMap((lane) => {
      const worth = freeIn(lane, this.#free) + aheadOf(lane);
      // Work that has just arrived may still get a slot at any moment, so it stays for the horizon at least.
      const limitMs = (at: number): number => (at < worth ? LONGEST_WAIT_MS : HORIZON_MS);
      const isAged = ({ since }: Waiting<W>, at: number): boolean => now - since >= limitMs(at);
      const back = lane.buffer.filter(isAged);
      if (back.length === 0) return [];
      lane.buffer.splice(0, Infinity, ...lane.buffer.filter((one, at) => !isAged(one, at)));
      lane.prefetch.turnedOutLong();
      return back.map(({ work }) => work);
    });
  }

  /** Takes a slot for the next buffered work that may start, and returns that work; undefined if there is none. */
  next(): W | undefined {
    if (this.#free <= 0) return undefined;
    for (const lane of this.#inTurn()) {
      if (lane.running >= lane.concurrency) continue;
      const first = lane.buffer.shift();
      if (first === undefined) continue;
      this.#turn += 1;
      this.#take(lane);
      return first.work;
    }
    return undefined;
  }

  /** Takes a slot for work that is about to be stored. Returns false if no slot is free or other work waits for it. */
  reserve(name: string): boolean {
    const lane = this.#lanes.get(name);
    if (lane === undefined || lane.buffer.length > 0) return false;
    if (this.#free <= 0 || lane.running >= lane.concurrency) return false;
    this.#take(lane);
    return true;
  }

  #take(lane: Lane<W>): void {
    lane.running += 1;
    this.#running += 1;
    this.#shared.running += 1;
  }

  /** Gives a slot back, without learning from a run. */
  free(name: string): void {
    const lane = this.#lanes.get(name);
    if (lane === undefined) return;
    lane.running -= 1;
    this.#running -= 1;
    this.#shared.running -= 1;
  }

  /** Gives a slot back after a run. Returns whether a claim for its name is worthwhile now. */
  done(name: string, durationMs: number): boolean {
    const lane = this.#lanes.get(name);
    if (lane === undefined) return false;
    this.free(name);
    lane.prefetch.learn(durationMs);
    return wants(lane, this.#room());
  }

  /** Removes work from its buffer. Returns false if it is no longer there, because it has started. */
  take(work: W): boolean {
    const buffer = this.#lanes.get(work.name)?.buffer ?? [];
    const at = buffer.findIndex((other) => other.work.id === work.id);
    if (at >= 0) buffer.splice(at, 1);
    return at >= 0;
  }

  waiting(): readonly W[] {
    return [...this.#lanes.values()].flatMap((lane) => lane.buffer.map(({ work }) => work));
  }

  /** Empties all buffers, or that of one name, and returns the work. */
  drain(name?: string): readonly W[] {
    return this.#drain((lane) => name === undefined || lane.name === name);
  }

  /** Empties the buffers of names that are no longer run here, and returns the work. */
  drainUndefined(): readonly W[] {
    return this.#drain((lane) => lane.concurrency === 0);
  }

  #drain(which: (lane: Lane<W>) => boolean): readonly W[] {
    const lanes = [...this.#lanes.values()].filter(which);
    return lanes.flatMap((lane) => lane.buffer.splice(0).map(({ work }) => work));
  }

  #inTurn(): Lane<W>[] {
    const lanes = [...this.#lanes.values()];
    const start = lanes.length === 0 ? 0 : this.#turn % lanes.length;
    return [...lanes.slice(start), ...lanes.slice(0, start)];
  }
}

/** How much of a name is worth prefetching if at most `most` of it can run at once. */
const aheadOf = (lane: Lane<Work>, most: number = lane.concurrency): number =>
  lane.mayTakeAhead ? lane.prefetch.ahead(most) : 0;

const freeIn = (lane: Lane<Work>, free: number): number =>
  Math.max(0, Math.min(lane.concurrency - lane.running, free));

const room = (lane: Lane<Work>, free: number): number =>
  Math.max(0, freeIn(lane, free) + aheadOf(lane) - lane.buffer.length);

/** True if a claim is worthwhile: a slot would stay empty, or at least half of the prefetched work is used up. */
function wants(lane: Lane<Work>, free: number): boolean {
  if (room(lane, free) === 0) return false;
  if (lane.buffer.length < freeIn(lane, free)) return true;
  return lane.buffer.length <= aheadOf(lane) / 2;
}

/** This instance's place among the live instances that run the name; the first of one if it is alone. */
function placeOf(name: string, cluster: Cluster | undefined, self: Instance): { rank: number; of: number } {
  const peers = (cluster?.instances ?? [])
    .filter((peer) => isAlive(peer) && peer.names.includes(name))
    .map((peer) => peer.life)
    .sort();
  return { rank: Math.max(0, peers.indexOf(self.life)), of: Math.max(1, peers.length) };
}
