import type { LimitChanges, LimitRate, LimitValues } from '../../../../src/dashboard/contract.js';

/** The texts of the form; empty: no limit. */
export interface Fields {
  readonly concurrency: string;
  readonly rate: string;
  readonly per: string;
  readonly burst: string;
  readonly failures: string;
  readonly within: string;
  readonly pause: string;
  readonly keyConcurrency: string;
  readonly keyRate: string;
  readonly keyPer: string;
  readonly keyBurst: string;
}

const text = (value: number | string | undefined): string => (value === undefined ? '' : String(value));

export function fieldsOf({ concurrency, rate, breaker, perKey }: LimitValues): Fields {
  return {
    concurrency: text(concurrency),
    rate: text(rate?.limit),
    per: text(rate?.per),
    burst: text(rate?.burst),
    failures: text(breaker?.failures),
    within: text(breaker?.within),
    pause: text(breaker?.pause),
    keyConcurrency: text(perKey?.concurrency),
    keyRate: text(perKey?.rate?.limit),
    keyPer: text(perKey?.rate?.per),
    keyBurst: text(perKey?.rate?.burst),
  };
}

type Writable<T> = { -readonly [K in keyof T]: T[K] };

/** What the form changes: groups of fields that are not as they were. */
export function changesOf(before: Fields, now: Fields): LimitChanges {
  const isNew = (...names: (keyof Fields)[]): boolean =>
    names.some((name) => before[name] !== now[name].trim());
  const changes: Writable<LimitChanges> = {};
  if (isNew('concurrency')) changes.concurrency = numberOf(now.concurrency);
  if (isNew('rate', 'per', 'burst')) changes.rate = rateOf(now.rate, now.per, now.burst);
  if (isNew('failures', 'within', 'pause')) {
    const failures = numberOf(now.failures);
    changes.breaker =
      failures === null ? null : { failures, within: now.within.trim(), pause: now.pause.trim() };
  }
  const perKey: Writable<NonNullable<LimitChanges['perKey']>> = {};
  if (isNew('keyConcurrency')) perKey.concurrency = numberOf(now.keyConcurrency);
  if (isNew('keyRate', 'keyPer', 'keyBurst')) perKey.rate = rateOf(now.keyRate, now.keyPer, now.keyBurst);
  return Object.keys(perKey).length === 0 ? changes : { ...changes, perKey };
}

/**
 * Null if the field is empty. 0 is sent as it is: the server says what to do instead. So is what is not a number, as a
 * negative one, since JSON has no other way to write it.
 */
function numberOf(value: string): number | null {
  if (value.trim() === '') return null;
  const number = Number(value);
  return Number.isFinite(number) ? number : -1;
}

function rateOf(limit: string, per: string, burst: string): LimitRate | null {
  const starts = numberOf(limit);
  if (starts === null) return null;
  const atOnce = numberOf(burst);
  return { limit: starts, per: per.trim(), ...(atOnce === null ? {} : { burst: atOnce }) };
}
