/**
 * Rates: never more than `limit` starts in any window of `per`, evenly spread but for a burst. Pure functions of the
 * server's time.
 *
 * Two rules hold together. The window is strict: each start counts from its grant until `per` after the last moment at
 * which it may happen, so a claim that comes late cannot crowd a window. The spacing is for evenness only: it is a
 * generic cell rate algorithm (GCRA) that forgives a little lateness, so that a late claim costs no throughput.
 *
 * The databases compute the same, so a change here must be made in each copy as well:
 * - MongoDB, an update pipeline: `rated` (`grantStarts`) and `givenBack` in src/mongodb/limits/scope.ts; for keys also
 *   `withoutStarts` in src/mongodb/limits/keys/document.ts.
 * - SQL, two functions for keys: `startsFunction` (`grantStarts`) and `unstartedFunction` (`givenBack`) in
 *   src/sql/schema/migrations/0012-keys.ts. Once 0.1.0 is released that step is frozen, and a change needs a new step.
 * Tests compare them: src/testing/conformance/facts/limits.ts for scopes, test/sql/limits/rate.embedded.test.ts for the
 * SQL functions.
 */

/** At most `limit` starts in any window of `perMs`. */
export interface RateLimit {
  readonly limit: number;
  readonly perMs: number;
  /** How many may start at once. */
  readonly burst: number;
}

/** Starts that were granted together. */
export interface GrantedStarts {
  /** They happen before this time, in milliseconds of the server's clock; a multiple of the rate's slice. */
  readonly end: number;
  readonly count: number;
}

/** What is remembered of a rate. Its size does not grow with `limit` beyond the number of slices. */
export interface RateState {
  /** When the next start is due if all are evenly spread. */
  readonly next: number;
  /** The starts that still count, by ascending `end`. */
  readonly starts: readonly GrantedStarts[];
}

export interface RateGrant {
  readonly state: RateState;
  /** How many of the starts that were asked for may happen. */
  readonly granted: number;
  /** Names the grant in `givenBack`. */
  readonly end: number;
  /** When the next start may be granted, if no others ask; in the past or now: at once. */
  readonly freeAt: number;
}

/** A window is counted in this many slices: a start is forgotten up to one slice late, which costs 1/64 of the rate. */
const SLICES = 64;
/** Lateness that is made good: at most this share of `per`, and at most so long or this share of the spacing. */
const FORGIVEN = { share: 0.05, mostMs: 50, ofSpacing: 0.25 };

export const NO_STARTS: RateState = { next: 0, starts: [] };

/** The length of a slice in milliseconds. */
export const sliceMs = ({ perMs }: RateLimit): number => Math.max(1, Math.ceil(perMs / SLICES));

/** The average distance of two starts in milliseconds. */
export const spacingMs = ({ limit, perMs }: RateLimit): number => perMs / limit;

/** How much earlier than evenly spread a start may come: the burst, and the lateness that is forgiven. */
export function toleranceMs(rate: RateLimit): number {
  const spacing = spacingMs(rate);
  const forgiven = Math.min(
    rate.perMs * FORGIVEN.share,
    Math.max(FORGIVEN.mostMs, spacing * FORGIVEN.ofSpacing),
  );
  return (rate.burst - 1) * spacing + forgiven;
}

const sum = (starts: readonly GrantedStarts[]): number =>
  starts.reduce((total, { count }) => total + count, 0);

/** The starts that count at `now`: those that may have happened less than `perMs` ago. */
export const counting = (
  { starts }: RateState,
  { perMs }: RateLimit,
  now: number,
): readonly GrantedStarts[] => starts.filter(({ end }) => end > now - perMs);

/** How many starts count at `now`. */
export const startsInWindow = (state: RateState, rate: RateLimit, now: number): number =>
  sum(counting(state, rate, now));

/** When the window has room for one more start. */
function windowFreeAt(starts: readonly GrantedStarts[], { limit, perMs }: RateLimit, now: number): number {
  let over = sum(starts) + 1 - limit;
  if (over <= 0) return now;
  for (const { end, count } of starts) {
    over -= count;
    if (over <= 0) return end + perMs;
  }
  return now + perMs;
}

/**
 * Grants up to `wanted` starts that happen from `now` until `withinMs` later. The later they may happen, the longer
 * they count: ask for no more time than a claim takes.
 */
export function grantStarts(
  state: RateState,
  rate: RateLimit,
  { wanted, now, withinMs }: { readonly wanted: number; readonly now: number; readonly withinMs: number },
): RateGrant {
  const slice = sliceMs(rate);
  const spacing = spacingMs(rate);
  const tolerance = toleranceMs(rate);
  const end = Math.ceil((now + withinMs) / slice) * slice;
  const kept = counting(state, rate, now);
  const next = Math.max(state.next, now);
  const spaced = next - tolerance > now ? 0 : Math.floor((now + tolerance - next) / spacing) + 1;
  const granted = Math.max(0, Math.min(wanted, rate.limit - sum(kept), spaced));
  const starts = granted === 0 ? kept : withStarts(kept, { end, count: granted });
  const moved = granted === 0 ? state.next : next + granted * spacing;
  const freeAt = Math.max(windowFreeAt(starts, rate, now), Math.ceil(moved - tolerance));
  return { state: { next: moved, starts }, granted, end, freeAt };
}

/** Gives back starts that did not happen. What does not count any more is not given back twice. */
export function givenBack(state: RateState, rate: RateLimit, unused: readonly GrantedStarts[]): RateState {
  let { next, starts } = state;
  for (const { end, count } of unused) {
    const known = starts.find((one) => one.end === end)?.count ?? 0;
    const back = Math.min(known, count);
    starts = starts
      .map((one) => (one.end === end ? { end, count: one.count - back } : one))
      .filter((one) => one.count > 0);
    next -= back * spacingMs(rate);
  }
  return { next, starts };
}

function withStarts(starts: readonly GrantedStarts[], more: GrantedStarts): readonly GrantedStarts[] {
  const known = starts.find(({ end }) => end === more.end);
  if (known === undefined) return [...starts, more].sort((a, b) => a.end - b.end);
  return starts.map((one) => (one === known ? { end: one.end, count: one.count + more.count } : one));
}
