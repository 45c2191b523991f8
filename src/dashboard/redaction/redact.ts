/** Prepares values for the browser: removes what must not be seen, and describes what JSON cannot express. */
import { REDACTED, redactText } from './redact-text.js';
import { lastKeyOf, SecretNames } from './secret-names.js';

const LONGEST_TEXT = 20_000;
const MOST_NODES = 20_000;
const DEEPEST = 50;

const isOpaque = (value: object): value is { toJSON: () => unknown } =>
  typeof (value as { toJSON?: unknown }).toJSON === 'function';

export class Redactor {
  readonly #names: SecretNames;
  /** Patterns of several keys, each as a list in lower case, the last key first. */
  readonly #paths: readonly (readonly string[])[];
  /** The last keys of those patterns, for free text, in which the keys before the last are unknown. */
  readonly #lastKeys: ReadonlySet<string>;

  constructor(patterns: readonly string[]) {
    this.#names = new SecretNames(patterns.filter((pattern) => !pattern.includes('.')));
    this.#paths = patterns
      .filter((pattern) => pattern.includes('.'))
      .map((pattern) => pattern.toLowerCase().split('.').reverse());
    this.#lastKeys = new Set(this.#paths.map(([key = '']) => lastKeyOf(key)));
  }

  /** Whether a path ends like one of the patterns. Positions in lists are not part of a path. */
  hides(path: readonly string[]): boolean {
    if (this.#names.has(path.at(-1) ?? '')) return true;
    const keys = path.map((key) => key.toLowerCase()).reverse();
    return this.#paths.some(
      (pattern) =>
        pattern.length <= keys.length && pattern.every((key, at) => key === '*' || key === keys[at]),
    );
  }

  /** Whether comparing this path would reveal something hidden. */
  guards(path: string): boolean {
    const keys = path.split('.').filter((key) => !/^\d+$/u.test(key));
    return keys.some((_key, at) => this.hides(keys.slice(0, at + 1)));
  }

  /** Redacts free text. Only a value that follows its name is found. */
  text(text: string): string {
    if (this.#names.isEmpty && this.#paths.length === 0) return shortened(text);
    // Shortened afterwards: a secret that is cut in the middle would not be recognised.
    const start = text.slice(0, 2 * LONGEST_TEXT);
    return shortened(
      redactText(start, (name) => this.#names.has(name) || this.#lastKeys.has(lastKeyOf(name))),
    );
  }

  /** Whether a text contains something hidden. */
  hidesIn(text: string): boolean {
    return this.text(text) !== text;
  }

  value(value: unknown): unknown {
    const budget = { nodes: MOST_NODES };
    return this.#copy(value, [], budget);
  }

  #copy(value: unknown, path: readonly string[], budget: { nodes: number }): unknown {
    budget.nodes -= 1;
    if (budget.nodes < 0 || path.length > DEEPEST) return '… (omitted: too large)';
    if (typeof value === 'string') return this.text(value);
    if (typeof value === 'bigint') return String(value);
    if (typeof value !== 'object' || value === null) return value;
    if (value instanceof Uint8Array) return `(${String(value.byteLength)} bytes)`;
    // Dates, ObjectIds and the like describe themselves best.
    if (isOpaque(value)) return this.#plain(value, path, budget);
    if (Array.isArray(value)) return this.#list(value, path, budget);
    return this.#object(value, path, budget);
  }

  #plain(value: { toJSON: () => unknown }, path: readonly string[], budget: { nodes: number }): unknown {
    const said = value.toJSON();
    return typeof said === 'object' && said !== null && isOpaque(said)
      ? '(a value that cannot be shown)'
      : this.#copy(said, path, budget);
  }

  #list(list: readonly unknown[], path: readonly string[], budget: { nodes: number }): unknown {
    const shown = list.slice(0, Math.max(0, budget.nodes)).map((item) => this.#copy(item, path, budget));
    const rest = list.length - shown.length;
    return rest > 0 ? [...shown, `… (${String(rest)} more)`] : shown;
  }

  #object(value: object, path: readonly string[], budget: { nodes: number }): unknown {
    const copy: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
    for (const [key, item] of Object.entries(value)) {
      if (budget.nodes < 0) break;
      const inner = [...path, key];
      copy[key] = this.hides(inner) ? REDACTED : this.#copy(item, inner, budget);
    }
    return copy;
  }
}

const shortened = (text: string): string =>
  text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text;
