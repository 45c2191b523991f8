/**
 * Expectations on node:assert/strict, so that the suite needs no test runner of its own. The matchers have the names
 * and the meaning that Vitest and Jest gave them.
 */
// By name: a default import needs helpers in CommonJS, which the bundler would place in this entry for all others to load.
import { deepEqual, equal, notEqual, ok, rejects, throws } from 'node:assert/strict';

type Constructor = abstract new (...args: never[]) => unknown;

export interface Expectation {
  readonly not: Pick<Expectation, 'toBe' | 'toContainEqual' | 'toHaveProperty'>;
  readonly rejects: Rejection;
  toBe(expected: unknown): void;
  toBeDefined(): void;
  toBeUndefined(): void;
  toBeNull(): void;
  /** Deep equality; a property that is undefined counts as absent. */
  toEqual(expected: unknown): void;
  /** Deep equality of the parts that `expected` names. Lists must have the same length. */
  toMatchObject(expected: unknown): void;
  toBeInstanceOf(expected: Constructor): void;
  toHaveLength(expected: number): void;
  /** A part of a text, or one element of a list. */
  toContain(expected: unknown): void;
  toContainEqual(expected: unknown): void;
  toHaveProperty(name: string): void;
  toBeGreaterThan(expected: number): void;
  toBeGreaterThanOrEqual(expected: number): void;
  toBeLessThan(expected: number): void;
  toBeLessThanOrEqual(expected: number): void;
  /** Calls the value; the error's message must contain the text. */
  toThrow(expected: string): void;
}

interface Rejection {
  /** The error's message must contain the text, or the error be of the class. */
  toThrow(expected: string | Constructor): Promise<void>;
  toMatchObject(expected: unknown): Promise<void>;
}

export function expect(actual: unknown): Expectation {
  return {
    not: {
      toBe: (expected) => notEqual(actual, expected),
      toContainEqual: (expected) => ok(!containsEqual(actual, expected), shown(actual)),
      toHaveProperty: (name) => ok(!has(actual, name), `${name} in ${shown(actual)}`),
    },
    rejects: rejection(actual),
    toBe: (expected) => equal(actual, expected),
    toBeDefined: () => notEqual(actual, undefined),
    toBeUndefined: () => equal(actual, undefined),
    toBeNull: () => equal(actual, null),
    toEqual: (expected) => deepEqual(plain(actual), plain(expected)),
    toMatchObject: (expected) => deepEqual(partOf(actual, expected), plain(expected)),
    toBeInstanceOf: (expected) =>
      ok(actual instanceof expected, `${shown(actual)} is not a ${expected.name}`),
    toHaveLength: (expected) => equal((actual as { length: number }).length, expected),
    toContain: (expected) => ok(contains(actual, expected), `${shown(expected)} in ${shown(actual)}`),
    toContainEqual: (expected) => ok(containsEqual(actual, expected), shown(actual)),
    toHaveProperty: (name) => ok(has(actual, name), `no ${name} in ${shown(actual)}`),
    toBeGreaterThan: (expected) => compared(actual, '>', expected, Number(actual) > expected),
    toBeGreaterThanOrEqual: (expected) => compared(actual, '>=', expected, Number(actual) >= expected),
    toBeLessThan: (expected) => compared(actual, '<', expected, Number(actual) < expected),
    toBeLessThanOrEqual: (expected) => compared(actual, '<=', expected, Number(actual) <= expected),
    toThrow: (expected) => throws(actual as () => unknown, messageWith(expected)),
  };
}

const rejection = (actual: unknown): Rejection => ({
  toThrow: (expected) =>
    rejects(
      actual as Promise<unknown>,
      typeof expected === 'string' ? messageWith(expected) : (error) => error instanceof expected,
    ),
  toMatchObject: (expected) =>
    rejects(actual as Promise<unknown>, (error) => {
      expect(error).toMatchObject(expected);
      return true;
    }),
});

const messageWith =
  (text: string) =>
  (error: unknown): true => {
    expect((error as Error).message).toContain(text);
    return true;
  };

const shown = (value: unknown): string => {
  const text = value instanceof Error ? String(value) : (JSON.stringify(value) as string | undefined);
  return (text ?? String(value)).slice(0, 2_000);
};

const compared = (actual: unknown, sign: string, expected: number, holds: boolean): void =>
  ok(holds, `expected ${String(actual)} ${sign} ${String(expected)}`);

const has = (value: unknown, name: string): boolean =>
  typeof value === 'object' && value !== null && name in value;

const contains = (actual: unknown, expected: unknown): boolean =>
  typeof actual === 'string' ? actual.includes(String(expected)) : (actual as unknown[]).includes(expected);

const containsEqual = (actual: unknown, expected: unknown): boolean =>
  (actual as unknown[]).some((one) => {
    try {
      deepEqual(plain(one), plain(expected));
      return true;
    } catch {
      return false;
    }
  });

/** An object or list that is compared by its fields, unlike a date or an error. */
const isStructure = (value: unknown): value is object =>
  typeof value === 'object' &&
  value !== null &&
  !(value instanceof Date || value instanceof Map || value instanceof Set || value instanceof Error);

/** A copy without prototypes and without properties that are undefined. */
function plain(value: unknown): unknown {
  if (!isStructure(value)) return value;
  if (Array.isArray(value)) return value.map(plain);
  const entries = Object.entries(value).filter(([, part]) => part !== undefined);
  return bare(entries.map(([key, part]) => [key, plain(part)]));
}

/** Those parts of `actual` that `expected` names, so that a difference shows nothing else. */
function partOf(actual: unknown, expected: unknown): unknown {
  if (!isStructure(expected) || typeof actual !== 'object' || actual === null) return plain(actual);
  if (Array.isArray(expected) && Array.isArray(actual))
    return actual.map((one, at) => (at in expected ? partOf(one, expected[at]) : plain(one)));
  const named = Object.entries(expected).filter(([key, part]) => part !== undefined && key in actual);
  return bare(named.map(([key, part]) => [key, partOf((actual as Record<string, unknown>)[key], part)]));
}

/** Without a prototype `__proto__` is a key like any other. */
function bare(entries: readonly (readonly [string, unknown])[]): object {
  const object = Object.create(null) as Record<string, unknown>;
  for (const [key, value] of entries) object[key] = value;
  return object;
}
