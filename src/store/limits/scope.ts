import { givenBack, grantStarts, NO_STARTS, startsInWindow, type RateState } from '../../time/rate.js';
import {
  FAILURE_SLICES,
  WAITING_MS,
  type BreakerRule,
  type Refusal,
  type ScopeAsk,
  type ScopeDefinition,
  type ScopeGrant,
  type ScopeLimits,
  type ScopeRecord,
  type ScopeRef,
} from './limits.js';

/** What a grant is answered with again, if its ask is repeated. */
type LastGrant = Pick<ScopeGrant, 'at' | 'starts' | 'notAfter' | 'countedAs' | 'trial'>;

export interface Holder {
  readonly seq: number;
  readonly held: number;
  readonly claimsUntil: number;
  readonly gone: boolean;
  readonly last: LastGrant;
}

interface Breaker {
  readonly state: 'closed' | 'open' | 'trial';
  readonly until: number;
  readonly by: string;
}

interface Failures {
  readonly end: number;
  readonly count: number;
}

/** A scope, as `exchange` reads and writes it. Immutable: each transition returns another one. */
export interface Scope {
  readonly limits: ScopeLimits;
  readonly rev: number;
  readonly holders: ReadonlyMap<string, Holder>;
  readonly rate: RateState;
  readonly breaker: Breaker;
  readonly failures: readonly Failures[];
  /** Which life was refused last, and until when that counts. */
  readonly contended: { readonly by: string; readonly until: number };
}

const CLOSED: Breaker = { state: 'closed', until: 0, by: '' };

export const newScope = (limits: ScopeLimits): Scope => ({
  limits,
  rev: 1,
  holders: new Map(),
  rate: NO_STARTS,
  breaker: CLOSED,
  failures: [],
  contended: { by: '', until: 0 },
});

export interface Exchanged {
  readonly scope: Scope;
  readonly grant: ScopeGrant | 'stale';
  /** Others may get more now. */
  readonly frees: boolean;
}

/**
 * One ask of one life: the transition that `LimitStore.exchange` describes, as a pure function of the server's time.
 * The conformance suite compares every store with it.
 */
export function exchange(before: Scope, life: string, ask: ScopeAsk, now: number): Exchanged {
  const mine = before.holders.get(life);
  if (mine?.gone === true || (mine !== undefined && ask.seq < mine.seq))
    return { scope: before, grant: 'stale', frees: false };
  if (mine?.seq === ask.seq) return { scope: before, grant: repeated(before, ask, mine, now), frees: false };
  const kept = forgotten(before, now);
  const rated = withUnused(kept, ask);
  const told = withOutcomes(rated, life, ask, now);
  const answer = granted(told, life, ask, now);
  const { scope } = answer;
  const grant = { ...answer.grant, ...turnedBy(ask, kept.breaker, told.breaker) };
  const gaveBack = grant.held < (mine?.held ?? 0) || (ask.unused ?? []).length > 0;
  const closed = kept.breaker.state !== 'closed' && told.breaker.state === 'closed';
  return { scope, grant, frees: closed || (gaveBack && grant.contended) };
}

/** How the outcomes that an ask tells have turned the breaker. A trial that came to nothing turns it back only. */
function turnedBy({ trial }: ScopeAsk, before: Breaker, after: Breaker): Pick<ScopeGrant, 'turned'> {
  const isUnused = before.state === 'trial' && trial === 'unused';
  return before === after || isUnused || after.state === 'trial' ? {} : { turned: after.state };
}

const isOver = ({ gone, claimsUntil }: Holder, now: number): boolean => gone && claimsUntil <= now;

function forgotten(scope: Scope, now: number): Scope {
  const { breaker } = scope.limits;
  return {
    ...scope,
    holders: new Map([...scope.holders].filter(([, holder]) => !isOver(holder, now))),
    failures: breaker === undefined ? [] : scope.failures.filter(({ end }) => end > now - breaker.withinMs),
    breaker: breaker === undefined ? CLOSED : scope.breaker,
  };
}

const withUnused = (scope: Scope, { unused = [] }: ScopeAsk): Scope =>
  scope.limits.rate === undefined
    ? scope
    : {
        ...scope,
        rate: givenBack(
          scope.rate,
          scope.limits.rate,
          unused.map(({ countedAs, count }) => ({ end: countedAs, count })),
        ),
      };

function withOutcomes(scope: Scope, life: string, { trial, failures = 0 }: ScopeAsk, now: number): Scope {
  const rule = scope.limits.breaker;
  if (rule === undefined) return scope;
  const { breaker } = scope;
  if (breaker.state === 'trial' && breaker.by === life && trial !== undefined) {
    if (trial === 'succeeded') return { ...scope, breaker: CLOSED, failures: [] };
    return {
      ...scope,
      breaker: { state: 'open', until: trial === 'failed' ? now + rule.pauseMs : now, by: '' },
    };
  }
  return breaker.state === 'closed' && failures > 0 ? withFailures(scope, rule, failures, now) : scope;
}

function withFailures(scope: Scope, rule: BreakerRule, count: number, now: number): Scope {
  const slice = Math.max(1, Math.ceil(rule.withinMs / FAILURE_SLICES));
  const end = Math.ceil(now / slice) * slice;
  const failures = [...scope.failures, { end, count }];
  const total = failures.reduce((sum, one) => sum + one.count, 0);
  if (total < rule.failures) return { ...scope, failures };
  return { ...scope, failures: [], breaker: { state: 'open', until: now + rule.pauseMs, by: '' } };
}

const heldBy = ({ holders }: Scope): number => [...holders.values()].reduce((sum, { held }) => sum + held, 0);

function granted(
  scope: Scope,
  life: string,
  ask: ScopeAsk,
  now: number,
): { scope: Scope; grant: ScopeGrant } {
  const mine = scope.holders.get(life);
  const had = mine?.held ?? 0;
  const free = Math.max(0, (scope.limits.concurrency ?? Infinity) - heldBy(scope));
  const held = ask.hold <= had ? ask.hold : had + Math.min(ask.hold - had, free);
  const passed = throughBreaker(scope, Math.max(0, Math.min(ask.starts, held - ask.inUse)), now);
  const rated = throughRate(scope, passed.starts, ask, now);
  const trial = passed.trial && rated.starts > 0;
  const last = {
    at: new Date(now),
    starts: rated.starts,
    notAfter: new Date(now + ask.withinMs),
    countedAs: rated.countedAs,
    trial,
  };
  const claimsUntil = Math.max(mine?.claimsUntil ?? 0, now + ask.withinMs);
  const refusal = refusalOf(scope, ask, { held, passed: passed.starts, rated, now });
  const contended =
    refusal === undefined || refusal.refusedBy === 'breaker'
      ? unmarked(scope, life)
      : { by: life, until: now + WAITING_MS };
  const after: Scope = {
    ...scope,
    rate: rated.state,
    breaker: trial ? { state: 'trial', until: 0, by: life } : scope.breaker,
    holders: new Map(scope.holders).set(life, { seq: ask.seq, held, claimsUntil, gone: false, last }),
    contended,
  };
  return {
    scope: after,
    grant: { ...last, held, ...refusal, ...present(after, scope.contended, life, now) },
  };
}

const unmarked = ({ contended }: Scope, life: string): Scope['contended'] =>
  contended.by === life ? { by: '', until: 0 } : contended;

const present = (
  { limits, rev, breaker }: Scope,
  contended: Scope['contended'],
  life: string,
  now: number,
): Pick<ScopeGrant, 'limits' | 'rev' | 'breaker' | 'contended'> => ({
  limits,
  rev,
  breaker: breaker.state,
  contended: contended.until > now && contended.by !== life,
});

function throughBreaker(
  { breaker }: Scope,
  starts: number,
  now: number,
): { readonly starts: number; readonly trial: boolean } {
  if (breaker.state === 'closed') return { starts, trial: false };
  if (breaker.state === 'open' && breaker.until <= now) return { starts: Math.min(1, starts), trial: true };
  return { starts: 0, trial: false };
}

interface Rated {
  readonly starts: number;
  readonly state: RateState;
  readonly countedAs: number;
  readonly freeAt: number;
}

function throughRate(scope: Scope, wanted: number, { withinMs }: ScopeAsk, now: number): Rated {
  const { rate } = scope.limits;
  if (rate === undefined) return { starts: wanted, state: NO_STARTS, countedAs: 0, freeAt: now };
  const { state, granted: starts, end, freeAt } = grantStarts(scope.rate, rate, { wanted, now, withinMs });
  return { starts, state, countedAs: end, freeAt };
}

function refusalOf(
  { breaker }: Scope,
  { hold, inUse, starts }: ScopeAsk,
  given: { readonly held: number; readonly passed: number; readonly rated: Rated; readonly now: number },
): { readonly refusedBy: Refusal; readonly until?: Date } | undefined {
  const { held, passed, rated, now } = given;
  if (rated.starts < passed) return { refusedBy: 'rate', until: new Date(Math.max(rated.freeAt, now)) };
  if (passed < Math.min(starts, held - inUse)) {
    const isOpen = breaker.state === 'open' && breaker.until > now;
    return { refusedBy: 'breaker', ...(isOpen ? { until: new Date(breaker.until) } : {}) };
  }
  return held < hold ? { refusedBy: 'concurrency' } : undefined;
}

function repeated(scope: Scope, ask: ScopeAsk, { held, last }: Holder, now: number): ScopeGrant {
  return {
    ...last,
    held,
    ...present(scope, scope.contended, '', now),
    ...(held < ask.hold ? { refusedBy: 'concurrency' } : {}),
  };
}

/** The life never claims again: what it may still have on its way counts to its end. */
export function dropped(scope: Scope, life: string, now: number): Scope | undefined {
  const mine = scope.holders.get(life);
  const tries = scope.breaker.state === 'trial' && scope.breaker.by === life;
  if ((mine === undefined || mine.gone) && !tries) return undefined;
  const holders = new Map(scope.holders);
  if (mine !== undefined && mine.claimsUntil > now) holders.set(life, { ...mine, gone: true });
  else holders.delete(life);
  return { ...scope, holders, breaker: tries ? { state: 'open', until: now, by: '' } : scope.breaker };
}

/** The starts that count now, and when the next one may be granted. */
function rateUse(
  { limits: { rate }, rate: state }: Scope,
  now: number,
): { startsInWindow: number; freeAt: number } {
  if (rate === undefined) return { startsInWindow: 0, freeAt: now };
  const { freeAt } = grantStarts(state, rate, { wanted: 0, now, withinMs: 0 });
  return { startsInWindow: startsInWindow(state, rate, now), freeAt };
}

/** A person opens or closes the breaker; undefined if there is none. */
export function turned(scope: Scope, to: 'open' | 'closed', now: number): Scope | undefined {
  const rule = scope.limits.breaker;
  if (rule === undefined) return undefined;
  const breaker: Breaker = to === 'open' ? { state: 'open', until: now + rule.pauseMs, by: '' } : CLOSED;
  return { ...scope, failures: [], breaker };
}

/** The scope as people read it. */
export function toScopeRecord(
  ref: ScopeRef,
  definition: ScopeDefinition,
  scope: Scope,
  now: number,
): ScopeRecord {
  const { startsInWindow, freeAt } = rateUse(scope, now);
  const { state, until, by } = scope.breaker;
  return {
    ...definition,
    scope: ref,
    rev: scope.rev,
    holders: [...scope.holders]
      .filter(([, holder]) => !isOver(holder, now))
      .map(([life, { seq, held, claimsUntil, gone }]) => ({
        life,
        seq,
        held,
        claimsUntil: new Date(claimsUntil),
        gone,
      })),
    startsInWindow,
    ...(freeAt > now ? { rateFreeAt: new Date(freeAt) } : {}),
    breaker: {
      state,
      ...(state === 'open' ? { until: new Date(until) } : {}),
      ...(state === 'trial' ? { by } : {}),
    },
    contended: scope.contended.until > now,
  };
}
