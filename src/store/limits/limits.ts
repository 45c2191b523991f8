/**
 * The port of limits: how much of something may run at once, and how much may start per time, in the whole cluster.
 * Begin with `LimitStore`; port.ts explains the words of the comments.
 *
 * A **scope** is what has limits: the jobs of a name, a reactive task, a document schedule, or a shared limit. It is
 * one small document, which `exchange` changes in one atomic write by the server's clock. An instance first asks the
 * scopes of a name for **permits** and **starts**, then claims at most that many, then gives back what is left. A
 * permit counts one piece of work from its claim until its outcome is recorded, and serves the next piece after that.
 * A start is one claim, retries included.
 *
 * Limits per key are part of the claim itself: see `NameLimit.keys` in work.ts.
 */
import type { RateLimit } from '../../time/rate.js';

export type { RateLimit } from '../../time/rate.js';

export type ScopeKind = 'job' | 'task' | 'documents' | 'shared';

/** Identifies a scope: a kind, and a name that may contain any character. */
export interface ScopeRef {
  readonly kind: ScopeKind;
  readonly name: string;
}

/** A scope whose work may have keys. */
export interface KeyedScope {
  readonly kind: 'job' | 'task';
  readonly name: string;
}

export const isKeyedScope = (scope: ScopeRef): scope is KeyedScope =>
  scope.kind === 'job' || scope.kind === 'task';

/** A scope as one text. Kinds contain no colon, so no two scopes have the same. */
export const scopeText = ({ kind, name }: ScopeRef): string => `${kind}:${name}`;

/** Limits of each key of a name, and how its keys take turns. */
export interface KeyRule {
  /** How much of one key may run at once. Absent: no limit. */
  readonly concurrency?: number;
  /** Starts of one key. Absent: no limit. */
  readonly rate?: RateLimit;
  /** One at a time, by `NewJob.limitOrder`. `concurrency` is 1 then. */
  readonly order?: 'fifo';
  /** With `order`: whether a job that waits for its retry holds its key, or lets the next one pass. */
  readonly whileRetrying?: 'hold' | 'pass';
}

/** Stops all starts after too many failed attempts. */
export interface BreakerRule {
  readonly failures: number;
  readonly withinMs: number;
  readonly pauseMs: number;
}

/** The limits of a scope that hold now. Absent parts: no limit. */
export interface ScopeLimits {
  readonly concurrency?: number;
  readonly rate?: RateLimit;
  readonly perKey?: KeyRule;
  readonly breaker?: BreakerRule;
  /** Names of shared limits that this scope's work needs as well; `exchange` ignores them. */
  readonly shared?: readonly string[];
}

/** What `define` writes. The store reads `limits` only. */
export interface ScopeDefinition {
  /** What holds: `code` merged with `set`, by the caller. */
  readonly limits: ScopeLimits;
  /** What the code says, and who said it; any JSON value. */
  readonly code: unknown;
  /** What an operator changed; any JSON value, null if nothing. */
  readonly set: unknown;
}

/** `closed`: work starts. `open`: nothing starts before `until`. `trial`: the life `by` tries one start. */
export interface BreakerState {
  readonly state: 'closed' | 'open' | 'trial';
  /** When an open breaker lets one start through. */
  readonly until?: Date;
  /** The life that has the trial. */
  readonly by?: string;
}

/** What one life has of a scope. */
export interface ScopeHolder {
  readonly life: string;
  /** The number of its last ask that counted. */
  readonly seq: number;
  /** Its permits. */
  readonly held: number;
  /** Until when it may claim by what it was granted last; its permits count so long, even after `drop`. */
  readonly claimsUntil: Date;
  /** It was dropped: what is left ends at `claimsUntil`. */
  readonly gone: boolean;
}

/** A scope as it is stored, for people and for `define`. */
export interface ScopeRecord extends ScopeDefinition {
  readonly scope: ScopeRef;
  /** Raised by each `define`. */
  readonly rev: number;
  /** Without those whose `claimsUntil` has passed after a `drop`. */
  readonly holders: readonly ScopeHolder[];
  /** Starts that count against the rate now; 0 without a rate. */
  readonly startsInWindow: number;
  /** When the next start may be granted by the rate; absent: now. */
  readonly rateFreeAt?: Date;
  readonly breaker: BreakerState;
  /** Some life was refused less than `WAITING_MS` ago. */
  readonly contended: boolean;
}

/** For how long a refused ask marks its scope, so that a life that gives permits back tells those that wait. */
export const WAITING_MS = 5_000;
/** The slices in which failures are counted: a failure counts for `withinMs`, and up to one slice longer. */
export const FAILURE_SLICES = 16;

/** What a life asks of one scope, and tells it. All of it is one transition. */
export interface ScopeAsk {
  readonly scope: ScopeRef;
  /** Greater than that of every earlier ask of this life for this scope. */
  readonly seq: number;
  /** How many permits the life wants to have, those that it has included. Fewer than it has: it gives the rest back. */
  readonly hold: number;
  /** How many of them its work needs now; the others are for `starts`. */
  readonly inUse: number;
  /** How many starts it wants. */
  readonly starts: number;
  /** It claims before this time has passed, or not at all. It counts from the server's time of the answer. */
  readonly withinMs: number;
  /** Starts of earlier grants that did not happen. */
  readonly unused?: readonly UnusedStarts[];
  /** Failed attempts since its last ask. */
  readonly failures?: number;
  /** What became of the trial that this life has. */
  readonly trial?: 'succeeded' | 'failed' | 'unused';
}

export interface UnusedStarts {
  /** `ScopeGrant.countedAs` of their grant. */
  readonly countedAs: number;
  readonly count: number;
}

/** Which rule kept a scope from granting all that was asked. */
export type Refusal = 'concurrency' | 'rate' | 'breaker';

export interface ScopeGrant {
  /** The server's time of the write. */
  readonly at: Date;
  /** The permits that the life has now. */
  readonly held: number;
  /** How many starts it may make before `notAfter`; at most `held` - `inUse`. */
  readonly starts: number;
  /** `at` + `withinMs`: the claim carries it as `NameLimit.notAfter`. */
  readonly notAfter: Date;
  /** Names these starts in `UnusedStarts`. 0 without a rate. */
  readonly countedAs: number;
  /** Present if less was granted than asked. */
  readonly refusedBy?: Refusal;
  /** When more may be granted, if the refusal ends by itself at a known time: that of a rate or an open breaker. */
  readonly until?: Date;
  /** Other lives wait for permits of this scope: give back what is not needed at once. */
  readonly contended: boolean;
  /** The one start that was granted is the trial of the breaker. */
  readonly trial: boolean;
  /** What this ask told has opened or closed the breaker. Absent from a repeated grant. */
  readonly turned?: 'open' | 'closed';
  /** What holds now, as of this write. */
  readonly limits: ScopeLimits;
  readonly breaker: BreakerState['state'];
  readonly rev: number;
}

/** A key of a name, as people look at it. */
export interface KeyUse {
  readonly key: string;
  /** How much of it runs. */
  readonly running: number;
  /** How much of it is due; counting stops at 1,000. */
  readonly due: number;
  /** Since when its first job is due; absent if none is. */
  readonly dueSince?: Date;
  /** When its rate lets the next start through; absent: now. */
  readonly rateFreeAt?: Date;
  /** The id of the job that is next by `order`, or that holds the key; absent without `order`, which tasks have not. */
  readonly head?: string;
  /** When `head` is due, if it waits for that. */
  readonly headAt?: Date;
}

/** Limits of the whole cluster. */
export interface LimitStore {
  /**
   * Takes and gives back permits and starts, in one atomic write for each scope; the server's clock decides.
   * All times are whole milliseconds: truncate the server's first, and compute with that.
   * Precondition, for each: the ask's `seq` is greater than the life's stored one, and the life is not `gone`. It then
   * does, in this order; `exchange` in src/store/limits/scope.ts is the same as a pure function:
   *
   * 1. Forgets holders that are `gone` and whose `claimsUntil` has passed, starts and failures that count no more.
   * 2. Gives `unused` back to the rate. What does not count any more is passed over.
   * 3. Breaker. `trial` of the life that has it: `succeeded` → closed, without failures; `failed` → open until `at` +
   *    `pauseMs`; `unused` → open until `at`. If closed, adds `failures`; if those of the last `withinMs` reach the
   *    rule's → open until `at` + `pauseMs`, without failures. Failures in other states are dropped. Without a rule:
   *    closed.
   * 4. Permits. `hold` up to what the life has: it has `hold` then. More: it gets as many of them as `concurrency`
   *    minus the permits of all lives leaves; no permit is ever taken away, even if the limit is below the sum.
   * 5. Starts: as many of `starts` as held - `inUse` and the rate allow (`grantStarts` in src/time/rate.ts). Open and
   *    `until` has passed: one at most, then → trial `by` this life. Open before that, or trial: none.
   * 6. Stores `seq`, what was held and granted, and `claimsUntil`: the later of the stored one and `at` + `withinMs`.
   *    If less was granted than asked by permits, marks the scope as contended for `WAITING_MS`.
   *
   * Returns a grant for each, in order; undefined if the scope does not exist. `stale`: the precondition failed, and
   * nothing was written. If a life has fewer permits than before and the scope is contended, or its breaker has closed,
   * calls `WatchHandlers.freed` of all instances, best effort.
   * Repeat: the same ask, with the stored `seq`, gets the same grant: `at`, `held`, `starts`, `notAfter`, `countedAs`
   * and `trial` are stored. The rest is as of now. An earlier `seq` is `stale`.
   * Locks several scopes in the order of `scopeText`, or one after the other: two calls must not wait for each other.
   * Errors: transient, as everywhere; the caller repeats the same asks until it has an answer.
   * Caller: the permits of an instance, one call at a time.
   */
  exchange(life: string, asks: readonly ScopeAsk[]): Promise<readonly (ScopeGrant | 'stale' | undefined)[]>;
  /**
   * Returns these scopes, or all, in any order; those that do not exist are left out. Repeat: safe.
   * Caller: `define`, people, the doctor, metrics, and the maintenance that looks for holders that are gone.
   */
  read(
    scopes?: readonly ScopeRef[],
  ): Promise<{ readonly now: Date; readonly scopes: readonly ScopeRecord[] }>;
  /**
   * Returns the sum of `rev` of all scopes, which each `define` raises. It is cheap. Repeat: safe.
   * Caller: an instance before a claim, every two seconds at most: the message of a change may be lost.
   */
  revision(): Promise<number>;
  /**
   * Defines a scope: none → defined, or the definition is replaced and `rev` raised. Holders, starts and the breaker
   * stay. Calls `WatchHandlers.freed` of all instances, best effort.
   * Precondition: `rev` is still `ifRev`; null: the scope does not exist. Returns `written` or `changed`.
   * Repeat: `changed`; the caller reads again, and finds its own definition.
   * Caller: an instance at its start, and `limits.set` and `limits.reset`.
   */
  define(scope: ScopeRef, definition: ScopeDefinition, ifRev: number | null): Promise<'written' | 'changed'>;
  /**
   * Frees what a life has in all scopes, for it never claims again. Where its `claimsUntil` has passed, its holder
   * goes; elsewhere it is marked as `gone` and counts until then, since a claim may still be on its way. A trial of
   * its becomes open until now. Calls `WatchHandlers.freed` for contended scopes. Repeat: no effect.
   * Caller: the reclaimer, when a dead instance holds no work, before `bury`, or a lease after its first try; an
   * instance at the end of its stop, if nothing of it is left; and maintenance, for holders that are not registered, which it checks after it has read the holders.
   */
  drop(life: string): Promise<void>;
  /**
   * Opens a breaker until `pauseMs` from now by the server's clock, or closes it and forgets its failures. Returns
   * false if the scope does not exist or has no breaker. Calls `WatchHandlers.freed`. Repeat: the same again.
   * Caller: people.
   */
  turnBreaker(scope: ScopeRef, to: 'open' | 'closed'): Promise<boolean>;
  /**
   * Returns the keys of a name that have waited longest with due work, up to `limit`, or those that are asked for.
   * Repeat: safe. Caller: people.
   */
  keys(
    scope: KeyedScope,
    rule: KeyRule,
    which: { readonly limit: number } | readonly string[],
  ): Promise<readonly KeyUse[]>;
  /**
   * Finds pending work with a key that the store does not offer to claims although its rule would, and offers it.
   * Returns how many it found. Repeat: safe, also on several instances at once. Absent if the store derives what it
   * offers from the work itself.
   * Caller: maintenance, once a minute on one instance of the cluster, and after a definition got its first `perKey`.
   */
  repairKeys?(scope: KeyedScope, rule: KeyRule): Promise<number>;
}
