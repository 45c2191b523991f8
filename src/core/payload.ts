import { OptionError } from './errors.js';
import { HALF_PAIR, show } from './options.js';
import { setOwn } from './set-own.js';

/** What a store accepts beyond JSON values and dates, and how it measures size. */
export interface PayloadRules {
  /** The approximate size in bytes of an object whose class the store keeps as is; null for any other object. */
  readonly keeps?: (value: object) => number | null;
  /** The exact stored size. Called only if the estimate is large. */
  readonly measure?: (value: unknown) => number;
  /** Why the store cannot hold this text, or null if it can. */
  readonly refusesText?: (text: string) => string | null;
  readonly maxDepth: number;
}

const MEASURE_ABOVE = 1_000_000;

class PayloadWalk {
  readonly #where: string;
  readonly #rules: PayloadRules;
  readonly #open = new Set<object>();
  bytes = 0;

  constructor(where: string, rules: PayloadRules) {
    this.#where = where;
    this.#rules = rules;
  }

  /** Checks one value and returns a copy as the store will return it: undefined properties are dropped. */
  value(value: unknown, path: string, depth: number): unknown {
    this.bytes += 8;
    switch (typeof value) {
      case 'string':
        return this.#text(value, path);
      case 'number':
        if (Number.isFinite(value)) return value;
        return this.#refuse(
          path,
          `is ${String(value)}, which would not be read back unchanged`,
          'use null or a string',
        );
      case 'boolean':
        return value;
      case 'bigint':
        return this.#refuse(path, 'is a bigint, which would not be read back unchanged', 'use a string');
      case 'object':
        return value === null ? null : this.#object(value, path, depth);
      default:
        return this.#refuse(path, `is of type ${typeof value}, which cannot be stored`, 'leave it out');
    }
  }

  #text(text: string, path: string): string {
    this.bytes += text.length;
    const reason = text.isWellFormed() ? (this.#rules.refusesText?.(text) ?? null) : HALF_PAIR;
    return reason === null ? text : this.#refuse(path, reason, 'encode the string, for example as base64');
  }

  #object(value: object, path: string, depth: number): unknown {
    if (value instanceof Date) {
      if (!Number.isNaN(value.getTime())) return new Date(value.getTime());
      return this.#refuse(path, 'is an invalid Date, which cannot be stored', 'use null');
    }
    const kept = this.#rules.keeps?.(value) ?? null;
    if (kept !== null) {
      this.bytes += kept;
      return value;
    }
    if (depth >= this.#rules.maxDepth) {
      return this.#refuse(path, `is nested deeper than ${String(this.#rules.maxDepth)} levels`, 'flatten it');
    }
    if (this.#open.has(value)) return this.#refuse(path, 'refers back to itself', 'store an id instead');
    this.#open.add(value);
    const copy = Array.isArray(value) ? this.#array(value, path, depth) : this.#plain(value, path, depth);
    this.#open.delete(value);
    return copy;
  }

  #array(items: readonly unknown[], path: string, depth: number): unknown[] {
    return Array.from(items, (item, index) => {
      const at = `${path}[${String(index)}]`;
      if (item === undefined)
        return this.#refuse(at, 'is undefined, which would be read back as null', 'use null');
      return this.value(item, at, depth + 1);
    });
  }

  #plain(value: object, path: string, depth: number): object {
    const prototype: unknown = Object.getPrototypeOf(value);
    if (prototype !== Object.prototype && prototype !== null) {
      return this.#refuse(
        path,
        `is ${show(value)}, which would not be read back unchanged`,
        'store a plain object',
      );
    }
    if (Object.getOwnPropertySymbols(value).length > 0) {
      return this.#refuse(path, 'has a symbol as a key, which cannot be stored', 'use a string');
    }
    const copy: Record<string, unknown> = {};
    for (const [key, item] of Object.entries(value)) {
      if (item === undefined) continue;
      const at = `${path}.${this.#text(key, path)}`;
      if (key === '_bsontype' && this.#rules.keeps !== undefined) {
        return this.#refuse(at, 'is a key that BSON reserves', 'use another one');
      }
      if (key.includes('\0'))
        return this.#refuse(at, 'has U+0000 in a key, which cannot be stored', 'leave it out');
      setOwn(copy, key, this.value(item, at, depth + 1));
    }
    return copy;
  }

  #refuse(path: string, what: string, fix: string): never {
    throw new OptionError(`${this.#where}: ${path} ${what}; ${fix}.`);
  }
}

/**
 * Checks that the store will return a value exactly as given, and returns the copy to store. Otherwise throws an
 * `OptionError` that names the path.
 */
export function checkPayload(
  where: string,
  root: string,
  value: unknown,
  rules: PayloadRules,
  maxBytes: number,
): unknown {
  const walk = new PayloadWalk(where, rules);
  const copy = walk.value(value, root, 0);
  const bytes = walk.bytes > MEASURE_ABOVE ? (rules.measure?.(copy) ?? walk.bytes) : walk.bytes;
  if (bytes > maxBytes) {
    throw new OptionError(
      `${where}: ${root} is ${String(bytes)} bytes, more than the limit of ${String(maxBytes)} (maxPayloadBytes); ` +
        'store the data elsewhere, and pass its id.',
    );
  }
  return copy;
}
