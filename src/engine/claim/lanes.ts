import type { Work } from '../../core/records/work.js';
import type { KeyTurns, NameLimit } from '../../store/port.js';
import type { Batching } from '../../time/batching.js';
import type { Place } from '../lease/lease-watch.js';
import { LaneBuffer } from './lane-buffer.js';
import { HORIZON_MS, MOST_AHEAD, MOST_BYTES_AHEAD, Prefetch } from './prefetch.js';

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
  /** Work of this name runs in batches, each in one slot. Default: one at a time. */
  readonly batch?: Batching;
}

interface Lane<W extends Work> {
  readonly name: string;
  concurrency: number;
  mayTakeAhead: boolean;
  /** A limit lets nothing of the name through now. */
  isBarred: boolean;
  /** How many slots its runs take. */
  running: number;
  readonly buffer: LaneBuffer<W>;
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
  /** The names that are run here, in the order of their turns. There may be many, so nothing goes through all of them. */
  #ring: readonly Lane<W>[] = [];
  /** Lanes whose work runs or waits in a buffer; those whose turn comes first are first. */
  readonly #active = new Set<Lane<W>>();
  /** Lanes with runs so short that prefetching is worthwhile. */
  readonly #short = new Set<Lane<W>>();
  readonly #slots: number;
  readonly #shared: Slots;
  #running = 0;
  #buffered = 0;
  #turn = 0;

  /** `shared` are the slots of the whole instance, across all kinds of work. */
  constructor(slots: number, shared: Slots = new Slots(slots)) {
    this.#slots = slots;
    this.#shared = shared;
  }

  /** Applies the current definitions. Names that are not among them are no longer claimed or started. */
  define(workers: ReadonlyMap<string, LaneOptions>): void {
    for (const lane of this.#lanes.values()) if (!workers.has(lane.name)) lane.concurrency = 0;
    for (const [name, { concurrency, ahead: mayTakeAhead = true, batch }] of workers) {
      const lane = this.#lanes.get(name) ?? {
        name,
        isBarred: false,
        running: 0,
        buffer: new LaneBuffer<W>(),
        prefetch: new Prefetch(),
      };
      lane.buffer.batch = batch;
      this.#lanes.set(name, Object.assign(lane, { concurrency, mayTakeAhead }));
    }
    this.#ring = [...this.#lanes.values()].filter((lane) => lane.concurrency > 0);
  }

  /** Says whether a limit lets nothing of the name through. What was claimed of it may start. */
  bar(name: string, isBarred: boolean): void {
    const lane = this.#lanes.get(name);
    if (lane !== undefined) lane.isBarred = isBarred;
  }

  get running(): number {
    return this.#running;
  }

  get buffered(): number {
    return this.#buffered;
  }

  get #bufferedBytes(): number {
    let sum = 0;
    for (const lane of this.#active) for (const { bytes = 0 } of lane.buffer.works) sum += bytes;
    return sum;
  }

  /** True if work of this name runs here. */
  has(name: string): boolean {
    return (this.#lanes.get(name)?.concurrency ?? 0) > 0;
  }

  /** True if work of this name runs in batches. */
  isBatched(name: string): boolean {
    return this.#lanes.get(name)?.buffer.batch !== undefined;
  }

  /** Returns a test whether it is worth claiming work of a name, as things are now. */
  roomFor(): (name: string) => boolean {
    const free = this.#room();
    return (name) => {
      const lane = this.#lanes.get(name);
      return lane !== undefined && wants(lane, free);
    };
  }

  /**
   * What to claim: names with room, those known to be due first, the rest in turn. Null if no claim is worthwhile. `now`
   * is monotonic time.
   */
  request(place: Place, now: number, due: ReadonlySet<string> = new Set()): LaneRequest | null {
    const free = this.#room();
    const chosen = this.#choose(due, (lane) => wants(lane, free), free > 0);
    if (chosen.length === 0) return null;
    const limits = new Map<string, NameLimit>();
    for (const lane of chosen)
      limits.set(lane.name, { max: mostNext(lane, free, now), ...place, ...turnsOf(lane, free) });
    const most = [...limits.values()].reduce((sum, limit) => sum + limit.max, 0);
    const total = Math.min(most, this.#worthTaking(free, chosen));
    return total === 0 ? null : { limits, total };
  }

  /** Goes on from turn to turn until it has enough. Without a free slot only prefetching is worthwhile. */
  #choose(due: ReadonlySet<string>, isWanted: (lane: Lane<W>) => boolean, isFree: boolean): Lane<W>[] {
    const chosen: Lane<W>[] = [];
    const first = [...due].flatMap((name) => this.#lanes.get(name) ?? []);
    const rest = isFree ? this.#ring : [...this.#short];
    let passed = 0;
    for (const lane of inTurn(first, this.#turn)) {
      if (chosen.length === NAMES_PER_CLAIM) break;
      passed += 1;
      if (isWanted(lane)) chosen.push(lane);
    }
    for (const lane of inTurn(rest, this.#turn)) {
      if (chosen.length === NAMES_PER_CLAIM) break;
      passed += 1;
      if (!due.has(lane.name) && isWanted(lane)) chosen.push(lane);
    }
    // If all names fit into one claim, another one comes first in the next; otherwise the next claim goes on from here.
    this.#turn += chosen.length === NAMES_PER_CLAIM ? passed : 1;
    return chosen;
  }

  /**
   * Free slots that no buffered work can fill, with what fills their batches, plus what all slots together get done
   * within the prefetch horizon.
   */
  #worthTaking(free: number, chosen: readonly Lane<W>[]): number {
    let taken = 0;
    let startable = 0;
    let ahead = 0;
    let rest = 0;
    for (const lane of this.#active) {
      const most = Math.min(lane.buffer.length, fill(lane, free));
      startable += most;
      taken += isByKey(lane)
        ? Math.min(lane.buffer.calls, freeIn(lane, free))
        : Math.ceil(most / perSlot(lane));
    }
    for (const lane of [...this.#active, ...chosen]) ahead = Math.max(ahead, aheadOf(lane, this.#slots));
    for (const lane of chosen)
      rest += Math.max(0, fill(lane, free) - Math.max(lane.buffer.length, freeIn(lane, free)));
    const isFull = this.#bufferedBytes >= MOST_BYTES_AHEAD;
    return (
      Math.max(0, free - taken) + rest + (isFull ? 0 : Math.max(0, ahead - (this.#buffered - startable)))
    );
  }

  /**
   * The number of free slots. If short work keeps all of them busy, a few count as free: otherwise its own buffer would
   * refill them forever, and no other name would get a turn.
   */
  #room(): number {
    const free = this.#free;
    if (free > 0) return free;
    const brisk = [...this.#active].every((lane) => lane.running === 0 || aheadOf(lane) > 0);
    return brisk ? Math.min(TURNOVER, this.#slots) : 0;
  }

  get #free(): number {
    return Math.min(this.#slots - this.#running, this.#shared.free);
  }

  /** Buffers claimed work. `now` is monotonic time. */
  accept(works: readonly W[], now: number): void {
    for (const work of works) {
      const lane = this.#lanes.get(work.name);
      if (lane === undefined) continue;
      lane.buffer.push(work, now);
      lane.prefetch.weigh(work.bytes ?? 0, now);
      this.#buffered += 1;
      this.#active.add(lane);
    }
  }

  /**
   * Removes and returns work that has waited too long, or is no longer worth holding because runs of its name turned
   * out to be long. Such a name prefetches nothing until its runs are short again.
   */
  aged(now: number): readonly W[] {
    return [...this.#active].flatMap((lane) => {
      const worth = fill(lane, this.#free) + aheadOf(lane);
      const gatheringMs = lane.buffer.batch?.waitMs ?? 0;
      // Work that has just arrived may still get a slot at any moment, so it stays for the horizon at least.
      const limitMs = (at: number): number => gatheringMs + (at < worth ? LONGEST_WAIT_MS : HORIZON_MS);
      const back = lane.buffer.remove((_work, since, at) => now - since >= limitMs(at));
      if (back.length === 0) return [];
      lane.prefetch.turnedOutLong();
      this.#short.delete(lane);
      this.#unbuffered(lane, back.length);
      return back;
    });
  }

  /**
   * Takes a slot for the next buffered work that may start, and returns that work: a batch, or one piece of work.
   * Undefined if there is none. `now` is monotonic time.
   */
  next(now: number): readonly W[] | undefined {
    if (this.#free <= 0) return undefined;
    for (const lane of this.#active) {
      if (lane.running >= lane.concurrency) continue;
      const works = lane.buffer.next(now);
      if (works.length === 0) continue;
      this.#take(lane);
      this.#unbuffered(lane, works.length);
      // The others have their turn before it.
      this.#active.delete(lane);
      this.#active.add(lane);
      return works;
    }
    return undefined;
  }

  /** Milliseconds until a batch that has a slot stops waiting for more work; undefined if none waits. */
  gatheringMs(now: number): number | undefined {
    if (this.#free <= 0) return undefined;
    const left = [...this.#active].flatMap((lane) =>
      lane.running >= lane.concurrency ? [] : (lane.buffer.gatheringMs(now) ?? []),
    );
    return left.length === 0 ? undefined : Math.min(...left);
  }

  #unbuffered(lane: Lane<W>, count: number): void {
    this.#buffered -= count;
    this.#rest(lane);
  }

  /** Takes a lane off the active ones if none of its work is left. */
  #rest(lane: Lane<W>): void {
    if (lane.running === 0 && lane.buffer.length === 0) this.#active.delete(lane);
  }

  /**
   * Takes a slot for work that is about to be stored. Returns false if no slot is free or other work waits for it, or if
   * the work belongs into a batch.
   */
  reserve(name: string): boolean {
    const lane = this.#lanes.get(name);
    if (lane === undefined || lane.buffer.length > 0 || lane.buffer.batch !== undefined) return false;
    if (this.#free <= 0 || lane.running >= lane.concurrency) return false;
    this.#take(lane);
    return true;
  }

  #take(lane: Lane<W>): void {
    lane.running += 1;
    this.#running += 1;
    this.#shared.running += 1;
    this.#active.add(lane);
  }

  /** Gives a slot back, without learning from a run. */
  free(name: string): void {
    const lane = this.#lanes.get(name);
    if (lane === undefined) return;
    lane.running -= 1;
    this.#running -= 1;
    this.#shared.running -= 1;
    this.#rest(lane);
  }

  /** Gives a slot back after a run. Returns whether a claim for its name is worthwhile now. */
  done(name: string, durationMs: number): boolean {
    const lane = this.#lanes.get(name);
    if (lane === undefined) return false;
    lane.prefetch.learn(durationMs);
    if (aheadOf(lane) > 0) this.#short.add(lane);
    else this.#short.delete(lane);
    this.free(name);
    return wants(lane, this.#room());
  }

  /** Removes work from its buffer. Returns false if it is no longer there, because it has started. */
  take(work: W): boolean {
    const lane = this.#lanes.get(work.name);
    if (lane === undefined || lane.buffer.remove(({ id }) => id === work.id).length === 0) return false;
    this.#unbuffered(lane, 1);
    return true;
  }

  waiting(): readonly W[] {
    return [...this.#active].flatMap((lane) => lane.buffer.works);
  }

  /** Empties all buffers, or that of one name, and returns the work. */
  drain(name?: string): readonly W[] {
    if (name === undefined) return this.#drain([...this.#active]);
    const lane = this.#lanes.get(name);
    return lane === undefined ? [] : this.#drain([lane]);
  }

  /** Empties the buffers of names that are no longer run here, and returns the work. */
  drainUndefined(): readonly W[] {
    return this.#drain([...this.#active].filter((lane) => lane.concurrency === 0));
  }

  #drain(lanes: readonly Lane<W>[]): readonly W[] {
    return lanes.flatMap((lane) => {
      const drained = lane.buffer.remove(() => true);
      this.#unbuffered(lane, drained.length);
      return drained;
    });
  }
}

/** All lanes, beginning with the one whose turn it is. */
function* inTurn<L>(lanes: readonly L[], turn: number): Generator<L> {
  for (let n = 0; n < lanes.length; n += 1) yield lanes[(turn + n) % lanes.length] as L;
}

/** How much of a name is worth prefetching if at most `most` slots run it at once. */
const aheadOf = (lane: Lane<Work>, most: number = lane.concurrency): number =>
  lane.mayTakeAhead ? lane.prefetch.ahead(most, perSlot(lane)) : 0;

const freeIn = (lane: Lane<Work>, free: number): number =>
  Math.max(0, Math.min(lane.concurrency - lane.running, free));

const isByKey = ({ buffer }: Lane<Work>): boolean => buffer.batch?.byKey === true;

/** How much work of a name one slot runs: a batch, which is smaller if its work is large. */
const perSlot = ({ buffer, prefetch }: Lane<Work>): number =>
  buffer.batch === undefined ? 1 : prefetch.within(buffer.batch.size);

/** How much work fills the free slots. Batches beyond the first share the limit of what may be held in memory. */
function fill(lane: Lane<Work>, free: number): number {
  const slots = freeIn(lane, free);
  const { batch } = lane.buffer;
  if (batch === undefined || slots === 0) return slots;
  const most = isByKey(lane) ? gathered(lane, free, batch) : slots * batch.size;
  return Math.max(perSlot(lane), slots, lane.prefetch.within(most));
}

/** How much work batches by key may hold, of which few may be full. */
const gathered = (lane: Lane<Work>, free: number, { size }: Batching): number =>
  Math.min(callsToFill(lane, free) * size, Math.max(MOST_AHEAD, freeIn(lane, free) * size));

function room(lane: Lane<Work>, free: number): number {
  if (isByKey(lane) && callsLeft(lane, free) <= 0) return 0;
  return Math.max(0, fill(lane, free) + aheadOf(lane) - lane.buffer.length);
}

/** How much of a name the next claim may bring: what there is room for, or less if its size is not known yet. */
const mostNext = (lane: Lane<Work>, free: number, now: number): number =>
  Math.min(room(lane, free), fill(lane, free) + Math.max(perSlot(lane), lane.prefetch.mostNext(now)));

/** True if a claim is worthwhile: a slot would stay empty, or at least half of the prefetched work is used up. */
function wants(lane: Lane<Work>, free: number): boolean {
  if (lane.isBarred || room(lane, free) === 0) return false;
  if (isByKey(lane)) return wantsCalls(lane, free);
  if (lane.buffer.length < fill(lane, free)) return true;
  return lane.buffer.length <= aheadOf(lane) / 2;
}

/**
 * How many calls by key the work of a lane may be for, since the keys of a claim are not known before. Those for the
 * free slots; while calls wait for more work, as many as the slots make until then, and at least twice as many as there
 * are slots, so that a key that gathers already can be claimed again.
 */
function callsToFill(lane: Lane<Work>, free: number): number {
  const slots = freeIn(lane, free);
  const waitMs = lane.buffer.batch?.waitMs ?? 0;
  if (slots === 0 || waitMs === 0) return slots;
  return Math.max(2 * lane.concurrency, lane.prefetch.callsWithin(lane.concurrency, waitMs + HORIZON_MS));
}

/** How many calls by key are worth prefetching for. */
const callsAhead = (lane: Lane<Work>): number =>
  lane.mayTakeAhead ? lane.prefetch.callsAhead(lane.concurrency) : 0;

const callsLeft = (lane: Lane<Work>, free: number): number =>
  callsToFill(lane, free) + callsAhead(lane) - lane.buffer.calls;

const wantsCalls = (lane: Lane<Work>, free: number): boolean =>
  lane.buffer.calls < callsToFill(lane, free) || lane.buffer.calls <= callsAhead(lane) / 2;

/** What a claim for calls by key may take: much of each of a few keys. */
function turnsOf(lane: Lane<Work>, free: number): { readonly turns?: KeyTurns } {
  if (!isByKey(lane)) return {};
  const most = Math.min(room(lane, free), callsLeft(lane, free));
  return { turns: { each: perSlot(lane), most } };
}
