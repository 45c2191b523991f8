import type { Work } from '../core/work.js';
import type { Cluster, Instance, NameLimit } from '../store/port.js';
import { MOST_AHEAD, Prefetch } from './prefetch.js';

/** More names than this are claimed by turns. */
const NAMES_PER_CLAIM = 32;
/** Slots that are about to be free while short work runs. */
const TURNOVER = 5;

/** All slots of an instance, over all kinds of work. */
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

interface Lane<W> {
  readonly name: string;
  concurrency: number;
  running: number;
  readonly buffer: W[];
  readonly prefetch: Prefetch;
}

export interface LaneRequest {
  readonly limits: ReadonlyMap<string, NameLimit>;
  readonly total: number;
}

/**
 * The slots of one instance, a lane per name.
 * - Says what to claim: free slots, plus what is worth taking ahead; names without room are left out.
 * - Holds what was taken ahead, and gives it out by turns, so that no name starves another.
 */
export class Lanes<W extends Work = Work> {
  readonly #lanes = new Map<string, Lane<W>>();
  readonly #slots: number;
  readonly #shared: Slots;
  #running = 0;
  #turn = 0;

  /** `shared`: the slots of the whole instance, of which these are a part. */
  constructor(slots: number, shared: Slots = new Slots(slots)) {
    this.#slots = slots;
    this.#shared = shared;
  }

  /** Takes over the present definitions; names that are not among them are neither claimed nor started any more. */
  define(workers: ReadonlyMap<string, { readonly concurrency: number }>): void {
    for (const lane of this.#lanes.values()) if (!workers.has(lane.name)) lane.concurrency = 0;
    for (const [name, { concurrency }] of workers) {
      const lane = this.#lanes.get(name);
      if (lane === undefined) {
        this.#lanes.set(name, { name, concurrency, running: 0, buffer: [], prefetch: new Prefetch() });
      } else lane.concurrency = concurrency;
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

  /** True where a job of this name could be taken now. */
  hasRoom(name: string): boolean {
    const lane = this.#lanes.get(name);
    return lane !== undefined && wants(lane, this.#room());
  }

  /** Names with room: those known to be due first, the others in their turn. Null where nothing is worth a claim. */
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
    return { limits, total: Math.min(most, Math.max(1, free + MOST_AHEAD - this.buffered)) };
  }

  /**
   * Free slots. Where short work keeps all of them busy, a few count as free: otherwise its own buffer would refill
   * them for ever, and no other name would get a turn.
   */
  #room(): number {
    const free = this.#free;
    if (free > 0) return free;
    const running = [...this.#lanes.values()].filter((lane) => lane.running > 0);
    const brisk = running.every((lane) => lane.prefetch.ahead(lane.concurrency) > 0);
    return brisk ? Math.min(TURNOVER, this.#slots) : 0;
  }

  get #free(): number {
    return Math.min(this.#slots - this.#running, this.#shared.free);
  }

  accept(works: readonly W[]): void {
    for (const work of works) this.#lanes.get(work.name)?.buffer.push(work);
  }

  /** The next buffered work that may start, or undefined. */
  next(): W | undefined {
    if (this.#free <= 0) return undefined;
    for (const lane of this.#inTurn()) {
      if (lane.running >= lane.concurrency) continue;
      const work = lane.buffer.shift();
      if (work === undefined) continue;
      this.#turn += 1;
      this.#take(lane);
      return work;
    }
    return undefined;
  }

  /** Takes a slot for work that is not there yet; false where none is free, or other work waits for it. */
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

  /** The work for which a slot was reserved did not come. */
  free(name: string): void {
    const lane = this.#lanes.get(name);
    if (lane === undefined) return;
    lane.running -= 1;
    this.#running -= 1;
    this.#shared.running -= 1;
  }

  /** A slot is free again; answers whether a claim for its name is worth while now. */
  done(name: string, durationMs: number): boolean {
    const lane = this.#lanes.get(name);
    if (lane === undefined) return false;
    this.free(name);
    lane.prefetch.learn(durationMs);
    return wants(lane, this.#room());
  }

  /** Takes one piece out of its buffer; false where it has started already. */
  take(work: W): boolean {
    const buffer = this.#lanes.get(work.name)?.buffer ?? [];
    const at = buffer.findIndex((other) => other.id === work.id);
    if (at >= 0) buffer.splice(at, 1);
    return at >= 0;
  }

  waiting(): readonly W[] {
    return [...this.#lanes.values()].flatMap((lane) => lane.buffer);
  }

  /** Empties the buffers, or the one of a name. */
  drain(name?: string): readonly W[] {
    return this.#drain((lane) => name === undefined || lane.name === name);
  }

  /** Empties the buffers of names that are not run here any more. */
  drainUndefined(): readonly W[] {
    return this.#drain((lane) => lane.concurrency === 0);
  }

  #drain(which: (lane: Lane<W>) => boolean): readonly W[] {
    return [...this.#lanes.values()].filter(which).flatMap((lane) => lane.buffer.splice(0));
  }

  #inTurn(): Lane<W>[] {
    const lanes = [...this.#lanes.values()];
    const start = lanes.length === 0 ? 0 : this.#turn % lanes.length;
    return [...lanes.slice(start), ...lanes.slice(0, start)];
  }
}

const freeIn = (lane: Lane<Work>, free: number): number =>
  Math.max(0, Math.min(lane.concurrency - lane.running, free));

const room = (lane: Lane<Work>, free: number): number =>
  Math.max(0, freeIn(lane, free) + lane.prefetch.ahead(lane.concurrency) - lane.buffer.length);

/** Worth a claim: a slot would stand empty, or half of what was taken ahead is used. */
function wants(lane: Lane<Work>, free: number): boolean {
  if (room(lane, free) === 0) return false;
  if (lane.buffer.length < freeIn(lane, free)) return true;
  return lane.buffer.length <= lane.prefetch.ahead(lane.concurrency) / 2;
}

/** This instance's place among the live ones that run the name. Alone: the first of one. */
function placeOf(name: string, cluster: Cluster | undefined, self: Instance): { rank: number; of: number } {
  const peers = (cluster?.instances ?? [])
    .filter((peer) => !peer.dead && peer.leftMs > 0 && peer.names.includes(name))
    .map((peer) => peer.life)
    .sort();
  return { rank: Math.max(0, peers.indexOf(self.life)), of: Math.max(1, peers.length) };
}
