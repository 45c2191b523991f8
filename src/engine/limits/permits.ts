import { Backoff } from '../../core/backoff.js';
import { type Clock, type Timer } from '../../core/clock.js';
import type { HeldUpBy, Meter } from '../../core/meter.js';
import {
  scopeText,
  type Instance,
  type LimitStore,
  type ScopeAsk,
  type ScopeGrant,
  type ScopeLimits,
  type ScopeRef,
  type UnusedStarts,
} from '../../store/port.js';

/** Work that counts against scopes: one engine, or the document schedules. */
export interface PermitUser {
  /** How many pieces of work it holds now, by the text of each scope. */
  inUse(): ReadonlyMap<string, number>;
  /** These scopes may let something through again. */
  unblocked(scopes: readonly string[]): void;
}

/** A start that a rate counts. */
export interface CountedStart {
  readonly scope: string;
  readonly countedAs: number;
}

export interface PermitsOptions {
  readonly store: LimitStore;
  readonly clock: Clock;
  readonly meter: Meter;
  readonly host: PermitsHost;
}

/** The instance that permits are for. */
export interface PermitsHost {
  self(): Instance;
  failed(error: unknown): void;
  /** What holds for a scope has changed. */
  changed(): void;
  /** A breaker has turned by what this instance told, or has its trial here. */
  turned(scope: ScopeRef, to: 'open' | 'trial' | 'closed', until?: Date): void;
  /** A scope that was declared is not there, so nothing of it may start. */
  missing(): void;
}

/** For how long a permit may be used again without asking: a dead instance's permits count so long at most. */
const PERMIT_MS = 2_000;
/** A claim under a permit must be sent this long before the permit ends, or the permit is asked for again. */
const MARGIN_MS = 500;
/** How long a start of a rate may take to be claimed: about three times what the last ones took. */
const CLAIM_MS = { first: 60, min: 15, max: 5_000, times: 3 };
/** How long a permit that is not needed stays, since the next piece of work may need it. */
const SPARE_MS = { alone: 25, contended: 10 };
/** The waits between tries to tell the store, while it does not answer. */
const RETRY_MS = { min: 250, max: 5_000, jitter: true };
/** So old may be what is known of limits when work is claimed: a message may be lost, and a busy instance hears none. */
const FRESH_MS = 2_000;
/** After so many claims in a row, a life gives a permit to those that wait, and asks for more only after this time. */
const TURNS = { most: 16, yieldMs: 50 };

interface Known {
  readonly ref: ScopeRef;
  limits: ScopeLimits;
  seq: number;
  /** Permits by the last answer; undefined while that is not known. */
  held: number | undefined;
  /** When the permits end, by the server's clock and by the monotonic one. */
  notAfter: Date;
  endsAt: number;
  isContended: boolean;
  /** Claims since it last gave way to others, or found that nobody waits. */
  turns: number;
  /** Monotonic time until which it gives way. */
  yieldsUntil: number;
  breaker: ScopeGrant['breaker'];
  unused: UnusedStarts[];
  failures: number;
  /** The ticket that has the breaker's trial. */
  trial: Ticket | undefined;
  trialEnded: 'succeeded' | 'failed' | 'unused' | undefined;
  /** The user of this instance that had the last turns, and how many in a row. */
  user: PermitUser | undefined;
  inRow: number;
  /** The user that lets others go first, and until when. */
  gaveWay: { readonly user: PermitUser; readonly until: number } | undefined;
  /** Users of this instance that got nothing since they asked last. */
  readonly refused: Set<PermitUser>;
}

/** How long a claim waits for a scope that is not there. */
const MISSING_MS = 250;

/** One scope of an exchange. */
interface Asking {
  readonly known: Known;
  readonly ask: ScopeAsk;
}

/** How work ended, as breakers see it. */
export type EndedAs = 'succeeded' | 'failed' | 'other';

/** What one claim was granted, until it is known what it took. */
export interface Ticket {
  readonly user: PermitUser;
  /** By the text of each scope: what the claim may still take. */
  readonly counts: Map<string, number>;
  readonly grants: ReadonlyMap<string, ScopeGrant>;
  readonly sentAt: number;
}

/** What a claim wants of one scope, and what it got. */
export interface Granted {
  readonly count: number;
  readonly notAfter: Date;
  /** Milliseconds until more may be granted; undefined: not known. */
  readonly waitMs?: number | undefined;
  readonly trial: boolean;
}

/**
 * The permits of one instance, for all kinds of its work. Duties: ask the scopes for what claims want, use permits
 * again while they hold, give back what is not needed, and tell breakers how attempts ended. It makes one exchange at a
 * time, and repeats one whose answer was lost until it has it: then it knows which starts it was granted, and gives
 * them back.
 */
export class Permits {
  readonly #options: PermitsOptions;
  readonly #known = new Map<string, Known>();
  readonly #users: PermitUser[] = [];
  readonly #tickets = new Set<Ticket>();
  #life = '';
  #queue: Promise<unknown> = Promise.resolve();
  #spare: Timer | undefined;
  readonly #retry = new Backoff(RETRY_MS);
  #claimMs: number = CLAIM_MS.first;
  /** The last exchange, while it is not answered. */
  #unanswered: readonly Asking[] = [];
  /** When it last asked whether limits have changed, and while it does. */
  #lookedAt = -Infinity;
  #looking: Promise<void> | undefined;
  /** `LimitStore.revision` as of then. */
  #revision: number | undefined;
  #stopped = false;

  constructor(options: PermitsOptions) {
    this.#options = options;
  }

  join(user: PermitUser): void {
    this.#users.push(user);
  }

  /** True if no scope is known. */
  get isUnlimited(): boolean {
    return this.#known.size === 0;
  }

  /** What holds for a scope, as far as is known; undefined if it has no limits. */
  limits(scope: string): ScopeLimits | undefined {
    return this.#known.get(scope)?.limits;
  }

  /** Says that the code has limits for a scope: nothing of it starts without them, even before they are read. */
  declare(ref: ScopeRef, limits: ScopeLimits): void {
    const text = scopeText(ref);
    if (!this.#known.has(text)) this.#known.set(text, newKnown(ref, limits));
  }

  /** Reads what holds for all scopes. */
  async refresh(): Promise<void> {
    const { store, clock } = this.#options;
    const sentAt = clock.monotonic();
    const { scopes } = await store.read();
    this.#lookedAt = Math.max(this.#lookedAt, sentAt);
    this.#revision = scopes.reduce((sum, { rev }) => sum + rev, 0);
    let isNew = false;
    for (const { scope, limits } of scopes) {
      const text = scopeText(scope);
      const known = this.#known.get(text);
      if (known !== undefined && JSON.stringify(known.limits) === JSON.stringify(limits)) continue;
      isNew = true;
      if (known === undefined) this.#known.set(text, newKnown(scope, limits));
      else known.limits = limits;
    }
    if (isNew) this.#options.host.changed();
  }

  /** To be called before a claim: reads limits that have changed, unless that was done a moment ago. */
  async fresh(): Promise<void> {
    const now = this.#options.clock.monotonic();
    if (now - this.#lookedAt < FRESH_MS) return this.#looking;
    this.#lookedAt = now;
    this.#looking = this.#look().finally(() => (this.#looking = undefined));
    try {
      await this.#looking;
    } catch (error) {
      this.#lookedAt = -Infinity;
      throw error;
    }
  }

  async #look(): Promise<void> {
    if ((await this.#options.store.revision()) !== this.#revision) await this.refresh();
  }

  /** Takes what a claim of a user wants of each scope, by its text. Call `claimed` with the ticket afterwards. */
  async take(
    user: PermitUser,
    wanted: ReadonlyMap<string, number>,
  ): Promise<{ ticket: Ticket; granted: ReadonlyMap<string, Granted> }> {
    return this.#inTurn(async () => {
      this.#beginLife();
      const yielding = new Set([...wanted.keys()].filter((text) => this.#givesWay(text, user)));
      const asking = [...wanted].flatMap(([text, count]) => {
        const known = this.#known.get(text);
        return known === undefined || yielding.has(text) ? [] : this.#toAsk(known, count);
      });
      const sentAt = this.#options.clock.monotonic();
      const grants = asking.length === 0 ? new Map<string, ScopeGrant>() : await this.#exchange(asking);
      const granted = new Map<string, Granted>();
      const ticket: Ticket = { user, counts: new Map(), grants, sentAt };
      for (const [text, count] of wanted) {
        const known = this.#known.get(text);
        if (known === undefined) continue;
        const got = yielding.has(text) ? this.#yielded(known) : this.#got(known, count, { asking, grants });
        if (!yielding.has(text)) this.#countTurn(known, user, got.count > 0);
        granted.set(text, got);
        ticket.counts.set(text, got.count);
        if (got.trial) known.trial = ticket;
      }
      this.#tickets.add(ticket);
      return { ticket, granted };
    });
  }

  /** A claim has ended: of each scope it used so many. `at`: the server's time of its answer, if there was one. */
  claimed(ticket: Ticket, used: ReadonlyMap<string, number>, at?: Date): void {
    this.#tickets.delete(ticket);
    let isUnused = false;
    for (const [text, count] of ticket.counts) {
      const known = this.#known.get(text);
      if (known === undefined) continue;
      const started = used.get(text) ?? 0;
      if (started > 0) this.started(text, started);
      if (started > 0 && known.trial === ticket) this.#options.host.turned(known.ref, 'trial');
      const left = count - started;
      const grant = ticket.grants.get(text);
      if (left > 0 && grant !== undefined && known.limits.rate !== undefined)
        known.unused.push({ countedAs: grant.countedAs, count: left });
      if (left > 0) isUnused = true;
      if (left > 0) this.#unblock([text], ticket.user);
      if (known.trial === ticket && left === count) this.#trialEnded(known, 'unused');
      if (grant !== undefined && at !== undefined) this.#learn(at.getTime() - grant.at.getTime());
    }
    this.#returnSpare(isUnused ? 0 : undefined);
  }

  /** Counts starts of a scope for the metrics. */
  started(text: string, count: number): void {
    this.#options.meter.limitStarted(text, count);
  }

  /** Counts for the metrics that a claim got less of a scope than it wanted. */
  heldUp(text: string, by: HeldUpBy): void {
    this.#options.meter.limitHeldUp(text, by);
  }

  /** A piece of work has ended: its permits are free for the next one. `tried`: the scopes whose trial it was. */
  ended(scopes: readonly string[], how: EndedAs, tried: readonly string[]): void {
    for (const text of scopes) {
      const known = this.#known.get(text);
      if (known?.limits.breaker === undefined) continue;
      if (how === 'failed') known.failures += 1;
      if (tried.includes(text) && known.trial !== undefined)
        this.#trialEnded(known, how === 'other' ? 'unused' : how);
    }
    const isTold = scopes.some((text) => this.#mustTell(text));
    this.#returnSpare(isTold ? 0 : undefined);
    this.#unblock(scopes);
  }

  /** Work whose handler was never called has ended: its starts do not count. */
  unstarted(starts: readonly CountedStart[]): void {
    for (const { scope, countedAs } of starts) this.#known.get(scope)?.unused.push({ countedAs, count: 1 });
    if (starts.length > 0) this.#returnSpare(0);
  }

  #unblock(scopes: readonly string[], except?: PermitUser): void {
    for (const user of this.#users) if (user !== except) user.unblocked(scopes);
  }

  /** After many turns in a row, a user lets those of this instance go first that were refused meanwhile. */
  #givesWay(text: string, user: PermitUser): boolean {
    const known = this.#known.get(text);
    if (known === undefined || known.user !== user) return false;
    const now = this.#options.clock.monotonic();
    if (known.gaveWay !== undefined) return now < known.gaveWay.until;
    const others = [...known.refused].filter((one) => one !== user);
    if (known.inRow < TURNS.most || others.length === 0) return false;
    known.inRow = 0;
    known.refused.clear();
    known.gaveWay = { user, until: now + TURNS.yieldMs };
    for (const other of others) other.unblocked([text]);
    return true;
  }

  #countTurn(known: Known, user: PermitUser, isServed: boolean): void {
    if (!isServed) {
      known.refused.add(user);
      return;
    }
    known.turns += 1;
    known.refused.delete(user);
    known.inRow = known.user === user ? known.inRow + 1 : 1;
    known.user = user;
    const gave = known.gaveWay?.user;
    known.gaveWay = undefined;
    if (gave !== undefined && gave !== user) gave.unblocked([scopeText(known.ref)]);
  }

  /**
   * Gives everything back that no work needs. Work without a recorded outcome may still run, so what it needs is kept
   * until the instance that reclaims it has handed it on. A claim that is on its way keeps its permits.
   */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#spare?.cancel();
    await this.#inTurn(async () => {
      const { store, host } = this.#options;
      const asked = [...this.#known.values()].filter(({ seq }) => seq > 0);
      if (asked.length > 0 && host.self().life === this.#life)
        await this.#exchange(asked.map((known) => ({ known, starts: 0 })));
      if (!this.isInUse) await store.drop(host.self().life);
    });
  }

  /** True while work, or a claim that is on its way, needs permits. */
  get isInUse(): boolean {
    return [...this.#known].some(([text, { seq }]) => seq > 0 && this.#used(text) > 0);
  }

  #mustTell(text: string): boolean {
    const known = this.#known.get(text);
    return known !== undefined && (known.failures > 0 || known.trialEnded !== undefined);
  }

  #trialEnded(known: Known, how: 'succeeded' | 'failed' | 'unused'): void {
    known.trial = undefined;
    known.trialEnded = how;
  }

  /** A lost lease begins another life, which has nothing yet. */
  #beginLife(): void {
    const { life } = this.#options.host.self();
    if (life === this.#life) return;
    this.#life = life;
    this.#tickets.clear();
    this.#unanswered = [];
    // Starts count for the cluster, whoever gives them back, and so do failures.
    for (const [text, { ref, limits, unused, failures }] of this.#known)
      this.#known.set(text, { ...newKnown(ref, limits), unused, failures });
  }

  #used(text: string): number {
    const own = this.#users.reduce((sum, user) => sum + (user.inUse().get(text) ?? 0), 0);
    return [...this.#tickets].reduce((sum, { counts }) => sum + (counts.get(text) ?? 0), own);
  }

  /** What to ask of a scope for a claim: nothing if free permits suffice, or while others have their turn. */
  #toAsk(known: Known, wanted: number): readonly { readonly known: Known; readonly starts: number }[] {
    const count = Math.min(wanted, this.#most(known));
    // All that it may have is in use: the end of a run frees some.
    if (count === 0 && known.held !== undefined) return [];
    if (this.#mayReuse(known, count) || this.#waitMs(known) > 0) return [];
    const hasTurns = known.limits.concurrency === undefined || known.turns < TURNS.most;
    if (!known.isContended || hasTurns) return [{ known, starts: count }];
    known.turns = 0;
    known.yieldsUntil = this.#options.clock.monotonic() + TURNS.yieldMs;
    const left = (known.held ?? 0) - 1 - this.#used(scopeText(known.ref));
    return [{ known, starts: Math.max(0, Math.min(count, left)) }];
  }

  /**
   * The most starts that are worth asking for. A life that asks for more than it can get counts as one that waits, and
   * would hide others that do.
   */
  #most(known: Known): number {
    const { limits, held = 0, isContended } = known;
    if (limits.concurrency === undefined) return Infinity;
    // A rate refuses too, so the mark says nothing about permits then.
    const most = isContended && held > 0 && limits.rate === undefined ? held : limits.concurrency;
    return Math.max(0, most - this.#used(scopeText(known.ref)));
  }

  /** Permits of these scopes were given back: it may ask for more again. */
  freed(scopes: readonly string[]): void {
    for (const text of scopes) {
      const known = this.#known.get(text);
      if (known !== undefined) known.isContended = false;
    }
  }

  /** How long it still gives way to others. */
  #waitMs({ yieldsUntil }: Known): number {
    return Math.max(0, yieldsUntil - this.#options.clock.monotonic());
  }

  #isReusable({ limits, held, endsAt }: Known): boolean {
    if (limits.rate !== undefined || limits.breaker !== undefined || held === undefined) return false;
    return this.#options.clock.monotonic() <= endsAt - MARGIN_MS;
  }

  #free(known: Known): number {
    return Math.max(0, (known.held ?? 0) - this.#used(scopeText(known.ref)));
  }

  /** Permits that are free and hold long enough serve a claim without a round trip. */
  #mayReuse(known: Known, count: number): boolean {
    return this.#isReusable(known) && known.turns < TURNS.most && this.#free(known) >= count;
  }

  #yielded({ notAfter, gaveWay }: Known): Granted {
    const waitMs = Math.max(1, (gaveWay?.until ?? 0) - this.#options.clock.monotonic());
    return { count: 0, notAfter, waitMs, trial: false };
  }

  #got(
    known: Known,
    count: number,
    {
      asking,
      grants,
    }: {
      readonly asking: readonly { readonly known: Known }[];
      readonly grants: ReadonlyMap<string, ScopeGrant>;
    },
  ): Granted {
    const grant = grants.get(scopeText(known.ref));
    if (grant !== undefined) return this.#gained(known, grant, count);
    return this.#reused(known, asking.some((one) => one.known === known) ? 0 : count);
  }

  /** Permits that the life has already; none if it asked and the scope, or its own ask, is gone. */
  #reused(known: Known, count: number): Granted {
    const waitMs = this.#waitMs(known);
    const most = this.#isReusable(known) ? this.#free(known) : 0;
    const { notAfter } = known;
    const got = { count: Math.min(count, most), notAfter, trial: false };
    return got.count > 0 ? got : { ...got, waitMs: waitMs === 0 ? MISSING_MS : waitMs };
  }

  #gained(known: Known, { at, starts, notAfter, until, trial }: ScopeGrant, wanted: number): Granted {
    const untilMs = until === undefined ? undefined : Math.max(1, until.getTime() - at.getTime());
    const yieldMs = this.#waitMs(known);
    const waitMs = yieldMs === 0 ? untilMs : Math.max(yieldMs, untilMs ?? 0);
    return { count: Math.min(starts, wanted), notAfter, waitMs, trial };
  }

  async #exchange(
    asking: readonly { readonly known: Known; readonly starts: number }[],
  ): Promise<Map<string, ScopeGrant>> {
    await this.#repeat();
    return this.#send(asking.map(({ known, starts }) => ({ known, ask: this.#ask(known, starts) })));
  }

  /** Asks for the answer that was lost, if there is one. Nobody waits for its starts any more. */
  async #repeat(): Promise<void> {
    if (this.#unanswered.length === 0) return;
    const grants = await this.#send(this.#unanswered);
    for (const [text, { starts, countedAs, trial }] of grants) {
      const known = this.#known.get(text);
      if (known === undefined) continue;
      if (starts > 0 && known.limits.rate !== undefined) known.unused.push({ countedAs, count: starts });
      if (trial) this.#trialEnded(known, 'unused');
    }
  }

  async #send(asking: readonly Asking[]): Promise<Map<string, ScopeGrant>> {
    const { store, clock } = this.#options;
    const sentAt = clock.monotonic();
    this.#unanswered = asking;
    let answers: Awaited<ReturnType<LimitStore['exchange']>>;
    try {
      answers = await store.exchange(
        this.#life,
        asking.map(({ ask }) => ask),
      );
    } catch (error) {
      for (const { known } of asking) known.held = undefined;
      // Without work that ends here, nothing else would tell the store what is free.
      this.#returnSpare(this.#retry.next());
      throw error;
    }
    this.#unanswered = [];
    this.#retry.reset();
    const grants = new Map<string, ScopeGrant>();
    let isNew = false;
    let isMissing = false;
    for (const [at, { known }] of asking.entries()) {
      const answer = answers[at];
      const text = scopeText(known.ref);
      if (answer === 'stale' || answer === undefined) {
        known.held = undefined;
        isMissing ||= answer === undefined;
      } else {
        isNew = JSON.stringify(known.limits) !== JSON.stringify(answer.limits) || isNew;
        this.#learnGrant(known, answer, sentAt);
        if (answer.refusedBy !== undefined) this.heldUp(text, answer.refusedBy);
        grants.set(text, answer);
      }
    }
    for (const { known } of asking) this.#tellTurn(known, grants.get(scopeText(known.ref)));
    if (isNew) this.#options.host.changed();
    if (isMissing) this.#options.host.missing();
    return grants;
  }

  #tellTurn({ ref, limits }: Known, grant: ScopeGrant | undefined): void {
    const { host } = this.#options;
    if (grant?.turned === 'closed') host.turned(ref, 'closed');
    else if (grant?.turned === 'open')
      host.turned(ref, 'open', new Date(grant.at.getTime() + (limits.breaker?.pauseMs ?? 0)));
  }

  #ask(known: Known, starts: number): ScopeAsk {
    const inUse = this.#used(scopeText(known.ref));
    const { limits, unused, failures, trialEnded, trial } = known;
    known.seq += 1;
    known.unused = [];
    known.failures = 0;
    known.trialEnded = undefined;
    // A trial of which this instance does not know is given back.
    const outcome =
      trialEnded ?? (trial === undefined && limits.breaker !== undefined ? 'unused' : undefined);
    return {
      scope: known.ref,
      seq: known.seq,
      hold: inUse + starts,
      inUse,
      starts,
      withinMs: starts === 0 ? 0 : limits.rate === undefined ? PERMIT_MS : Math.ceil(this.#claimMs),
      ...(unused.length === 0 ? {} : { unused }),
      ...(failures === 0 ? {} : { failures }),
      ...(outcome === undefined ? {} : { trial: outcome }),
    };
  }

  #learnGrant(known: Known, grant: ScopeGrant, sentAt: number): void {
    known.limits = grant.limits;
    known.held = grant.held;
    known.isContended = grant.contended;
    if (!grant.contended) known.turns = 0;
    known.breaker = grant.breaker;
    if (grant.notAfter > known.notAfter) {
      known.notAfter = grant.notAfter;
      known.endsAt = sentAt + grant.notAfter.getTime() - grant.at.getTime();
    }
  }

  #learn(tookMs: number): void {
    const wanted = Math.min(CLAIM_MS.max, Math.max(CLAIM_MS.min, tookMs * CLAIM_MS.times));
    // It grows at once and shrinks slowly: a start whose time is too short is lost.
    this.#claimMs = wanted > this.#claimMs ? wanted : this.#claimMs * 0.9 + wanted * 0.1;
  }

  /** Gives spare permits and unused starts back a little later, unless the next piece of work has taken them by then. */
  #returnSpare(waitMs?: number): void {
    if (this.#stopped) return;
    const isContended = [...this.#known.values()].some((known) => known.isContended);
    const { clock } = this.#options;
    if (waitMs === 0) {
      this.#spare?.cancel();
      this.#spare = undefined;
    }
    this.#spare ??= clock.timer(waitMs ?? (isContended ? SPARE_MS.contended : SPARE_MS.alone), () => {
      this.#spare = undefined;
      const returning = this.#returnNow().catch((error: unknown) => this.#options.host.failed(error));
      clock.track?.(returning);
    });
  }

  #returnNow(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#stopped) return;
      this.#beginLife();
      const asking = [...this.#known.values()].filter((known) => this.#hasSpare(known));
      if (asking.length === 0) return;
      const given = asking.filter(({ unused }) => unused.length > 0).map(({ ref }) => scopeText(ref));
      await this.#exchange(asking.map((known) => ({ known, starts: 0 })));
      // An ask that was on its way meanwhile may have been refused for a long time.
      if (given.length > 0) this.#unblock(given);
    });
  }

  #hasSpare(known: Known): boolean {
    const text = scopeText(known.ref);
    if (known.unused.length > 0 || this.#mustTell(text)) return true;
    return known.seq > 0 && (known.held === undefined || known.held > this.#used(text));
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#queue.then(work);
    this.#queue = turn.catch(() => undefined);
    return turn;
  }
}

const newKnown = (ref: ScopeRef, limits: ScopeLimits): Known => ({
  ref,
  limits,
  seq: 0,
  held: 0,
  notAfter: new Date(0),
  endsAt: -Infinity,
  isContended: false,
  turns: 0,
  yieldsUntil: -Infinity,
  breaker: 'closed',
  unused: [],
  failures: 0,
  trial: undefined,
  trialEnded: undefined,
  user: undefined,
  inRow: 0,
  gaveWay: undefined,
  refused: new Set(),
});
