import type { Clock } from '../../../core/clock.js';

interface Record {
  readonly since: number;
  tries: number;
  last: number;
}

/** After this many failures over this long, waiting does not help. */
const TRIES = 5;
const PATIENCE_MS = 5_000;
/** A failure that has not recurred for this long is forgotten: its row may be gone. */
const FORGET_MS = 600_000;

/**
 * Rows and batches whose statements fail with an error that usually passes. Such an error gets time, but not forever: a
 * filter may raise any code for one row, every time.
 */
export class Suspects {
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #records = new Map<string, Record>();

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock;
  }

  /**
   * Records a failure of these rows, or of the task if there are none. Returns true once it has lasted too long to pass
   * by itself.
   */
  failed(task: string, keys: readonly string[]): boolean {
    const now = this.#clock.monotonic();
    this.#forget(now);
    const name = nameOf(task, keys);
    const record = this.#records.get(name) ?? { since: now, tries: 0, last: now };
    this.#records.set(name, record);
    record.tries += 1;
    record.last = now;
    return record.tries >= TRIES && now - record.since >= PATIENCE_MS;
  }

  succeeded(task: string, keys: readonly string[]): void {
    if (this.#records.size === 0) return;
    this.#records.delete(nameOf(task, []));
    this.#records.delete(nameOf(task, keys));
    for (const key of keys) this.#records.delete(nameOf(task, [key]));
  }

  #forget(now: number): void {
    for (const [name, { last }] of this.#records) if (now - last > FORGET_MS) this.#records.delete(name);
  }
}

/** A batch that is tried again has the same first key and the same length. */
const nameOf = (task: string, keys: readonly string[]): string =>
  JSON.stringify([task, keys[0] ?? null, keys.length]);
