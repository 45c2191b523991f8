import type { Clock, Timer } from '../../core/clock.js';
import type { Work } from '../../core/records/work.js';
import {
  scopeText,
  type ClaimAnswer,
  type NameLimit,
  type ScopeKind,
  type ScopeLimits,
} from '../../store/port.js';
import type { LaneRequest } from '../claim/lanes.js';
import type { EndedAs, CountedStart, Granted, PermitUser, Permits, Ticket } from './permits.js';

export interface ClaimGateOptions {
  readonly permits: Permits;
  readonly clock: Clock;
  /** Which scopes the names of this engine are. */
  readonly kind: Exclude<ScopeKind, 'shared'>;
  /** How many pieces of work of each name this engine, or schedule, holds. */
  readonly held: () => ReadonlyMap<string, number>;
  /** Says whether a name may be claimed. `false` also wakes whoever waits. */
  readonly bar: (name: string, isBarred: boolean) => void;
}

/** What a claim took. */
export type Claimed = Pick<ClaimAnswer<Work>, 'more' | 'heldUp' | 'cluster'> & {
  readonly jobs: readonly Pick<Work, 'name' | 'id'>[];
};

/** A claim that may be sent, with what was granted for it. */
export interface Admitted {
  readonly request: LaneRequest | null;
  readonly ticket?: Ticket;
}

/**
 * How long a name waits that was refused without a time: a notification may be lost. A name whose keys hold up work
 * waits no longer either, since work of another key may become due meanwhile.
 */
const RECHECK_MS = 1_000;
const JITTER = 0.2;

/** A name that waits. */
interface Bar {
  readonly timer: Timer;
  readonly refusing: readonly string[];
}

/**
 * Lets claims of limited names through, as far as the scopes grant it. A name that gets nothing is barred until the
 * time that the refusal gave, until something of it ends here, or until permits are freed elsewhere. Names without
 * limits pass untouched.
 */
export class ClaimGate implements PermitUser {
  readonly #options: ClaimGateOptions;
  readonly #bars = new Map<string, Bar>();
  /** By the id of work: the scopes whose breaker tries it. */
  readonly #trials = new Map<string, readonly string[]>();
  /** Starts that rates count, by the id of the work. */
  readonly #starts = new Map<string, readonly CountedStart[]>();
  /** Names of which work may be due, by what happened since the last claim. Others cost a claim no exchange. */
  readonly #called = new Set<string>();

  constructor(options: ClaimGateOptions) {
    this.#options = options;
    options.permits.join(this);
  }

  limits(name: string): ScopeLimits | undefined {
    const { permits, kind } = this.#options;
    return permits.limits(scopeText({ kind, name }));
  }

  /** True if work of this name has to pass the gate. */
  isLimited(name: string): boolean {
    const limits = this.limits(name);
    return limits !== undefined && Object.keys(limits).length > 0;
  }

  /** True if some scope is known, so that names may be limited. */
  get isInUse(): boolean {
    return !this.#options.permits.isUnlimited;
  }

  /** True if work of the name may wait in a buffer: it counts neither as running nor as started then. */
  mayTakeAhead(name: string): boolean {
    const limits = this.limits(name);
    if (limits === undefined) return true;
    return this.#scopesOf(name).length === 0 && limits.perKey?.rate === undefined;
  }

  inUse(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const [name, count] of this.#options.held())
      for (const text of this.#scopesOf(name)) counts.set(text, (counts.get(text) ?? 0) + count);
    return counts;
  }

  /** Learns of limits that have changed lately. */
  fresh(): Promise<void> {
    return this.#options.permits.fresh();
  }

  /** `due` are the names with due work at the last peek. */
  async admit(asked: LaneRequest, due: ReadonlySet<string>): Promise<Admitted> {
    await this.fresh();
    const limited = [...asked.limits].filter(([name]) => this.isLimited(name));
    if (limited.length === 0) return { request: asked };
    const request = this.#withoutIdle(asked, due);
    if (request === null) return { request };
    const wanted = new Map<string, number>();
    for (const [name, { max }] of request.limits)
      for (const text of this.#scopesOf(name))
        wanted.set(text, (wanted.get(text) ?? 0) + Math.min(max, request.total));
    if (wanted.size === 0) return { request: this.#asking(this.#withKeys(request)) };
    const { ticket, granted } = await this.#options.permits.take(this, wanted);
    return { request: this.#asking(this.#narrowed(request, granted, ticket)), ticket };
  }

  /** From here on, a call is about work that the claim may not see. */
  #asking<R extends LaneRequest | null>(request: R): R {
    for (const name of request?.limits.keys() ?? []) this.#called.delete(name);
    return request;
  }

  /** True if some name waits for a limit. */
  get isHoldingUp(): boolean {
    return this.#bars.size > 0;
  }

  /** True if all of these names wait for their limits. */
  holdsUp(names: Iterable<string>): boolean {
    return [...names].every((name) => this.#bars.has(name));
  }

  /** Without limited names of which nothing is known to be due: asking their scopes would be in vain. */
  #withoutIdle({ limits, total }: LaneRequest, due: ReadonlySet<string>): LaneRequest | null {
    const isWanted = (name: string): boolean =>
      !this.isLimited(name) || due.has(name) || this.#called.has(name);
    const wanted = new Map([...limits].filter(([name]) => isWanted(name)));
    return wanted.size === 0 ? null : { limits: wanted, total };
  }

  /** Gives each name what all of its scopes grant; what scopes have beyond that goes back with the ticket. */
  #narrowed(request: LaneRequest, granted: ReadonlyMap<string, Granted>, ticket: Ticket): LaneRequest | null {
    const left = new Map([...granted].map(([text, { count }]) => [text, count]));
    const limits = new Map<string, NameLimit>();
    for (const [name, limit] of request.limits) {
      const scopes = this.#scopesOf(name).flatMap((text) => {
        const grant = granted.get(text);
        return grant === undefined ? [] : [{ text, grant }];
      });
      const refusing = scopes.map(({ text }) => text).filter((text) => (left.get(text) ?? 0) <= 0);
      const max = Math.min(limit.max, ...scopes.map(({ text }) => left.get(text) ?? 0));
      for (const { text } of scopes) left.set(text, (left.get(text) ?? 0) - max);
      if (max === 0)
        this.#bar(
          name,
          refusing,
          waitOf(scopes.flatMap(({ text, grant }) => (refusing.includes(text) ? [grant] : []))),
        );
      else
        limits.set(name, {
          ...limit,
          max,
          ...lastOf(scopes.map(({ grant }) => grant)),
          ...this.#keysOf(name),
        });
    }
    if (limits.size === 0) {
      this.#options.permits.claimed(ticket, new Map());
      return null;
    }
    const most = [...limits.values()].reduce((sum, { max }) => sum + max, 0);
    return { limits, total: Math.min(most, request.total) };
  }

  #withKeys(request: LaneRequest): LaneRequest {
    const limits = [...request.limits].map(
      ([name, limit]) => [name, { ...limit, ...this.#keysOf(name) }] as const,
    );
    return { ...request, limits: new Map(limits) };
  }

  #keysOf(name: string): Pick<NameLimit, 'keys'> | undefined {
    const keys = this.limits(name)?.perKey;
    return keys === undefined ? undefined : { keys };
  }

  /**
   * Puts work of names with keys in the order of their turns: first one of each key, then a second one. A claim may take
   * many of a key that waits alone, and they must not start before those of the others.
   */
  inTurns<W extends Work>(works: readonly W[]): readonly W[] {
    const isKeyed = new Set(
      [...new Set(works.map(({ name }) => name))].filter((name) => this.limits(name)?.perKey !== undefined),
    );
    if (isKeyed.size === 0) return works;
    const counts = new Map<string, number>();
    const turnOf = ({ name, limitKey = '' }: W & { readonly limitKey?: string }): number => {
      if (!isKeyed.has(name)) return 0;
      const key = JSON.stringify([name, limitKey]);
      const turn = counts.get(key) ?? 0;
      counts.set(key, turn + 1);
      return turn;
    };
    const turns = works.map((work) => ({ work, turn: turnOf(work) }));
    return turns.sort((a, b) => a.turn - b.turn).map(({ work }) => work);
  }

  /** The claim was answered. `ticket` is absent if none was needed. */
  claimed(asked: LaneRequest, answer: Claimed, ticket?: Ticket): void {
    const used = new Map<string, number>();
    if (answer.more) this.called(asked.limits.keys());
    for (const { name, id } of answer.jobs) {
      const scopes = this.#scopesOf(name);
      this.#countKeyed(name, scopes);
      for (const text of scopes) used.set(text, (used.get(text) ?? 0) + 1);
      const tried = scopes.filter((text) => ticket?.grants.get(text)?.trial === true);
      if (tried.length > 0) this.#trials.set(id, tried);
      const starts = scopes.flatMap((scope) => this.#counted(scope, ticket));
      if (starts.length > 0) this.#starts.set(id, starts);
    }
    for (const [name, at] of answer.heldUp ?? []) {
      if (!asked.limits.has(name)) continue;
      this.#options.permits.heldUp(this.#textOf(name), 'key');
      if (answer.more && answer.jobs.some((job) => job.name === name)) continue;
      const waitMs = at === null ? Infinity : Math.max(1, at.getTime() - answer.cluster.now.getTime());
      // It waits for a key: permits of a scope do not help it.
      this.#bar(name, [], Math.min(waitMs, recheckMs()));
    }
    if (ticket !== undefined) this.#options.permits.claimed(ticket, used, answer.cluster.now);
  }

  /** A name with limits per key alone asks no scope of its own for permits, which would count its starts. */
  #countKeyed(name: string, scopes: readonly string[]): void {
    if (this.limits(name)?.perKey === undefined) return;
    const text = this.#textOf(name);
    if (!scopes.includes(text)) this.#options.permits.started(text, 1);
  }

  #textOf(name: string): string {
    return scopeText({ kind: this.#options.kind, name });
  }

  #counted(scope: string, ticket: Ticket | undefined): CountedStart[] {
    const grant = ticket?.grants.get(scope);
    if (grant === undefined || grant.limits.rate === undefined) return [];
    return [{ scope, countedAs: grant.countedAs }];
  }

  /** True if limits have to hear of the end of this work. */
  concerns({ name, id }: Pick<Work, 'name' | 'id'>): boolean {
    return this.isLimited(name) || this.#starts.has(id) || this.#trials.has(id);
  }

  /** The claim was given up unanswered. What it may have taken is never started by this instance. */
  failed(asked: LaneRequest, ticket?: Ticket): void {
    this.called(asked.limits.keys());
    if (ticket !== undefined) this.#options.permits.claimed(ticket, new Map());
  }

  /** A piece of work is recorded, or another instance has it. Not started: its handler was never called. */
  ended({ name, id }: Pick<Work, 'name' | 'id'>, how: EndedAs, isStarted: boolean): void {
    const { permits } = this.#options;
    const starts = this.#starts.get(id) ?? [];
    this.#starts.delete(id);
    if (!isStarted) permits.unstarted(starts);
    permits.ended(this.#scopesOf(name), how, this.#trials.get(id) ?? []);
    this.#trials.delete(id);
    this.#unbar(name);
  }

  /** A process died while it ran work of a name. */
  crashed(name: string): void {
    this.#options.permits.ended(this.#scopesOf(name), 'failed', []);
  }

  /** Permits were freed elsewhere, or limits have changed. */
  freed(scopes: readonly string[]): void {
    this.#options.permits.freed(scopes);
    this.unblocked(scopes);
  }

  unblocked(scopes: readonly string[]): void {
    for (const [name, { refusing }] of [...this.#bars])
      if (refusing.some((text) => scopes.includes(text))) this.#unbar(name);
  }

  /** Limits have changed: nothing waits for those that it was refused by. */
  changed(): void {
    for (const name of [...this.#bars.keys()]) this.#unbar(name);
  }

  /** Work of these names may have become due, or a key of theirs free; of those that wait, if names are absent. */
  called(names?: Iterable<string>): void {
    for (const name of names ?? [...this.#bars.keys()]) {
      if (!this.isLimited(name)) continue;
      this.#called.add(name);
      if (this.limits(name)?.perKey !== undefined) this.#unbar(name);
    }
  }

  stop(): void {
    for (const { timer } of this.#bars.values()) timer.cancel();
    this.#bars.clear();
  }

  /** The scopes that grant permits or starts for a name; limits per key need none. */
  #scopesOf(name: string): string[] {
    const limits = this.limits(name);
    if (limits === undefined) return [];
    const { concurrency, rate, breaker, shared = [] } = limits;
    const own = concurrency ?? rate ?? breaker;
    const { kind, permits } = this.#options;
    return [
      ...(own === undefined ? [] : [scopeText({ kind, name })]),
      ...shared
        .map((one) => scopeText({ kind: 'shared', name: one }))
        .filter((text) => permits.limits(text) !== undefined),
    ];
  }

  /** `refusing`: the scopes that gave it nothing. Only they can end its wait early; others would let it ask again in vain. */
  #bar(name: string, refusing: readonly string[], waitMs: number = recheckMs()): void {
    this.#bars.get(name)?.timer.cancel();
    const timer = this.#options.clock.timer(Math.ceil(waitMs), () => this.#unbar(name));
    this.#bars.set(name, { timer, refusing });
    this.#options.bar(name, true);
  }

  #unbar(name: string): void {
    this.#bars.get(name)?.timer.cancel();
    if (!this.#bars.delete(name)) return;
    this.#called.add(name);
    this.#options.bar(name, false);
  }
}

const recheckMs = (): number => RECHECK_MS * (1 + JITTER * Math.random());

/**
 * When all of the scopes that had nothing left for a name may grant something again; undefined if that is not known of
 * one of them. What they did grant is another name's of the same claim.
 */
function waitOf(refusing: readonly Granted[]): number | undefined {
  if (refusing.length === 0 || refusing.some(({ waitMs }) => waitMs === undefined)) return undefined;
  return Math.max(...refusing.map(({ waitMs = 0 }) => waitMs));
}

const lastOf = (grants: readonly Granted[]): Pick<NameLimit, 'notAfter'> =>
  grants.length === 0
    ? {}
    : { notAfter: new Date(Math.min(...grants.map(({ notAfter }) => notAfter.getTime()))) };
