import type { Work } from '../../core/records/work.js';
import type { Cluster, Instance, NameLimit } from '../../store/port.js';
import { HORIZON_MS, Prefetch } from './prefetch.js';

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

/** How long claimed work waits for a slot before it goes back: several times what a buffer should take. */
const LONGEST_WAIT_MS = 4 * HORIZON_MS;

/** What a lane needs to know of a name. */
export interface LaneOptions {
  readonly concurrency: number;
  /** False: nothing of it is claimed before there is a slot for it. */
  readonly ahead?: boolean;
}

interface Waiting<W> {
  readonly work: W;
  /** When it was claimed, by the monotonic clock. */
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
 * The slots of one instance, a lane per name.
 * - Says what to claim: free slots, plus what is worth taking ahead; names without room are left out.
 * - Holds what was taken ahead, and gives it out by turns, so that no name starves another.
 * - Gives up what has waited too long, or is no longer worth holding, so that other instances can run it.
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
    const total = Math.min(most, this.#worthTaking(free));
    return total === 0 ? null : { limits, total };
  }

  /** Slots that nothing waits for yet, plus what all slots together get done within the horizon of prefetch. */
  #worthTaking(free: number): number {
    const lanes = [...this.#lanes.values()];
    const startable = lanes.reduce((sum, lane) => sum + Math.min(lane.buffer.length, freeIn(lane, free)), 0);
    const ahead = Math.max(0, ...lanes.map((lane) => aheadOf(lane, this.#slots)));
    return Math.max(0, free - startable) + Math.max(0, ahead - (this.buffered - startable));
  }

  /**
   * Free slots. Where short work keeps all of them busy, a few count as free: otherwise its own buffer would refill
   * them for ever, and no other name would get a turn.
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

  /** `now`: by the monotonic clock. */
  accept(works: readonly W[], now: number): void {
    for (const work of works) this.#lanes.get(work.name)?.buffer.push({ work, since: now });
  }

  /**
   * Takes out what has waited for too long, and what is no longer worth holding since its name turned out to be long.
   * A name of which something had to go back takes nothing ahead for a while.
   */
  aged(now: number): readonly W[] {
    return [...this.#lanes.values()].flatMap((lane) => {
      const worth = freeIn(lane, this.#free) + aheadOf(lane);
      // One that has just come may get a slot at any moment, whatever the average says.
      const limitMs = (at: number): number => (at < worth ? LONGEST_WAIT_MS : HORIZON_MS);
      const isAged = ({ since }: Waiting<W>, at: number): boolean => now - since >= limitMs(at);
      const back = lane.buffer.filter(isAged);
      if (back.length === 0) return [];
      lane.buffer.splice(0, Infinity, ...lane.buffer.filter((one, at) => !isAged(one, at)));
      lane.prefetch.turnedOutLong();
      return back.map(({ work }) => work);
    });
  }

  /** The next buffered work that may start, or undefined. */
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
    const at = buffer.findIndex((other) => other.work.id === work.id);
    if (at >= 0) buffer.splice(at, 1);
    return at >= 0;
  }

  waiting(): readonly W[] {
    return [...this.#lanes.values()].flatMap((lane) => lane.buffer.map(({ work }) => work));
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
    const lanes = [...this.#lanes.values()].filter(which);
    return lanes.flatMap((lane) => lane.buffer.splice(0).map(({ work }) => work));
  }

  #inTurn(): Lane<W>[] {
    const lanes = [...this.#lanes.values()];
    const start = lanes.length === 0 ? 0 : this.#turn % lanes.length;
    return [...lanes.slice(start), ...lanes.slice(0, start)];
  }
}

/** How much of a name is worth taking ahead, where at most `most` of it can run at once. */
const aheadOf = (lane: Lane<Work>, most: number = lane.concurrency): number =>
  lane.mayTakeAhead ? lane.prefetch.ahead(most) : 0;

const freeIn = (lane: Lane<Work>, free: number): number =>
  Math.max(0, Math.min(lane.concurrency - lane.running, free));

const room = (lane: Lane<Work>, free: number): number =>
  Math.max(0, freeIn(lane, free) + aheadOf(lane) - lane.buffer.length);

/** Worth a claim: a slot would stand empty, or half of what was taken ahead is used. */
function wants(lane: Lane<Work>, free: number): boolean {
  if (room(lane, free) === 0) return false;
  if (lane.buffer.length < freeIn(lane, free)) return true;
  return lane.buffer.length <= aheadOf(lane) / 2;
}

/** This instance's place among the live ones that run the name. Alone: the first of one. */
function placeOf(name: string, cluster: Cluster | undefined, self: Instance): { rank: number; of: number } {
  const peers = (cluster?.instances ?? [])
    .filter((peer) => !peer.dead && peer.leftMs > 0 && peer.names.includes(name))
    .map((peer) => peer.life)
    .sort();
  return { rank: Math.max(0, peers.indexOf(self.life)), of: Math.max(1, peers.length) };
}
