const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
] as const;

/** At most `units` units, such as `3h 20m`; milliseconds below a second. */
export function span(ms: number, units = 2): string {
  if (ms < 1_000) return `${String(Math.round(ms))}ms`;
  const first = UNITS.findIndex(([, size]) => ms >= size);
  const parts = UNITS.slice(first, first + units).map(([unit, size], index) => {
    const rest = index === 0 ? ms : ms % (UNITS[first]?.[1] ?? 1);
    return { unit, count: Math.floor(rest / size) };
  });
  return parts
    .filter(({ count }, index) => index === 0 || count > 0)
    .map(({ unit, count }) => `${String(count)}${unit}`)
    .join(' ');
}

/** `in 3m 20s`, `12s ago`, `now`. */
export function relative(at: Date, now: number, units = 2): string {
  const ms = at.getTime() - now;
  if (Math.abs(ms) < 1_000) return 'now';
  return ms > 0 ? `in ${span(ms, units)}` : `${span(-ms, units)} ago`;
}

/** For single pieces of work: the time itself, and how far away it is. */
export const moment = (at: Date, now: number): string => `${at.toISOString()} (${relative(at, now)})`;
