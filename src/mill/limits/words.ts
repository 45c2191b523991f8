import type { BreakerRule, KeyRule, RateLimit, ScopeLimits, ScopeRef } from '../../store/port.js';

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
] as const;

/** A duration as `set` takes it: `1m`, `90s`, `1500ms`. Exact, in the largest unit that is. */
export function durationText(ms: number): string {
  const [unit, size] = UNITS.find(([, one]) => ms >= one && ms % one === 0) ?? ['ms', 1];
  return `${String(ms / size)}${unit}`;
}

/** Such as `100 per 1m, burst 5`. */
const rateText = ({ limit, perMs, burst }: RateLimit): string =>
  `${String(limit)} per ${durationText(perMs)}${burst > 1 ? `, burst ${String(burst)}` : ''}`;

const breakerText = ({ failures, withinMs, pauseMs }: BreakerRule): string =>
  `breaker after ${String(failures)} failures within ${durationText(withinMs)}, for ${durationText(pauseMs)}`;

const numberParts = ({ concurrency, rate }: Pick<ScopeLimits, 'concurrency' | 'rate'>): readonly string[] => [
  ...(concurrency === undefined ? [] : [`${String(concurrency)} at once`]),
  ...(rate === undefined ? [] : [rateText(rate)]),
];

const keyParts = (perKey: KeyRule): readonly string[] => [
  ...(perKey.order === undefined ? [] : ['in order']),
  ...numberParts(perKey),
];

/** What limits say, one part for each. Empty: no limit. */
function limitParts({ perKey, shared, breaker, ...own }: ScopeLimits): readonly string[] {
  return [
    ...numberParts(own),
    ...(perKey === undefined ? [] : [`per key ${keyParts(perKey).join(', ') || 'in turns'}`]),
    ...(shared === undefined || shared.length === 0 ? [] : [`shares ${shared.join(', ')}`]),
    ...(breaker === undefined ? [] : [breakerText(breaker)]),
  ];
}

/** All limits in one line. */
export const limitsText = (limits: ScopeLimits): string => limitParts(limits).join(' · ') || 'no limit';

const NOUNS: Readonly<Record<ScopeRef['kind'], string>> = {
  job: 'limit of the job',
  task: 'limit of the reactive task',
  documents: 'limit of the document schedule',
  shared: 'shared limit',
};

/** Such as `shared limit erp-api`. */
export const limitTitle = ({ kind, name }: ScopeRef): string => `${NOUNS[kind]} ${name}`;
