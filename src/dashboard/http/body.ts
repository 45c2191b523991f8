/** The body of a POST request: a JSON object. Each value is checked as it is read; `only` refuses unknown keys. */
import type { Action, WorkKind } from '../contract.js';
import { badRequest, Refusal } from './errors.js';
import { KINDS } from './parameters.js';

const MOST_BYTES = 65_536;
const LONGEST = 8_000;

const ACTIONS: readonly Action[] = [
  'retry',
  'cancel',
  'remove',
  'run-now',
  'pause',
  'resume',
  'reconcile',
  'forget',
  'set-limit',
  'reset-limit',
  'open-breaker',
  'close-breaker',
];

async function readText(request: Request): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of (request.body ?? []) as AsyncIterable<Uint8Array>) {
    size += chunk.byteLength;
    if (size > MOST_BYTES) throw new Refusal(413, 'bad_request', 'The body is too large.');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export class Body {
  readonly #values: ReadonlyMap<string, unknown>;

  constructor(values: ReadonlyMap<string, unknown>) {
    this.#values = values;
  }

  static async read(request: Request): Promise<Body> {
    const text = await readText(request);
    try {
      const value = JSON.parse(text) as unknown;
      if (isPlain(value)) return new Body(new Map(Object.entries(value)));
    } catch {
      // Refused below.
    }
    throw badRequest('The body must be a JSON object.');
  }

  only(known: readonly string[]): void {
    for (const key of this.#values.keys())
      if (!known.includes(key))
        throw badRequest(`Unknown key "${key.slice(0, 50)}" in the body. Known keys: ${known.join(', ')}.`);
  }

  without(keys: readonly string[]): Body {
    return new Body(new Map([...this.#values].filter(([key]) => !keys.includes(key))));
  }

  has(key: string): boolean {
    return this.#values.has(key);
  }

  /** Any JSON value. */
  value(key: string): unknown {
    return this.#values.get(key);
  }

  optional(key: string): string | undefined {
    const value = this.#values.get(key);
    if (value === undefined) return undefined;
    if (typeof value === 'string' && value.length <= LONGEST) return value;
    throw badRequest(`"${key}" must be a string.`);
  }

  text(key: string): string {
    const value = this.optional(key);
    if (value === undefined || value === '') throw badRequest(`"${key}" is missing.`);
    return value;
  }

  texts(key: string, most: number): readonly string[] | undefined {
    const value = this.#values.get(key);
    if (value === undefined) return undefined;
    const isList = Array.isArray(value) && value.length > 0 && value.length <= most;
    if (isList && value.every((one) => typeof one === 'string' && one.length <= LONGEST))
      return value as readonly string[];
    throw badRequest(`"${key}" must be a list of 1 to ${String(most)} strings.`);
  }

  number(key: string): number | undefined {
    const value = this.#values.get(key);
    if (value === undefined || value === null) return undefined;
    if (typeof value === 'number' && Number.isInteger(value) && value >= 0) return value;
    throw badRequest(`"${key}" must be a whole number.`);
  }

  date(key: string): Date | undefined {
    const text = this.optional(key);
    if (text === undefined) return undefined;
    const at = new Date(text);
    if (/^\d{4}-\d\d-\d\dT/u.test(text) && !Number.isNaN(at.getTime())) return at;
    throw badRequest(`"${key}" must be a time such as 2026-11-16T08:00:00.000Z.`);
  }

  inner(key: string): Body {
    const value = this.#values.get(key);
    if (isPlain(value)) return new Body(new Map(Object.entries(value)));
    throw badRequest(`"${key}" must be an object.`);
  }

  kind(): WorkKind {
    const kind = KINDS.find((one) => one === this.#values.get('kind'));
    if (kind === undefined) throw badRequest(`"kind" must be one of ${KINDS.join(', ')}.`);
    return kind;
  }

  action(): Action {
    const action = ACTIONS.find((one) => one === this.#values.get('action'));
    if (action === undefined) throw badRequest(`"action" must be one of ${ACTIONS.join(', ')}.`);
    return action;
  }
}
