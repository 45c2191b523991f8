import { createHash } from 'node:crypto';
import type { TaskRecord } from '../../core/records/task.js';

const WINDOW_MS = 60_000;
/** So many runs of one document within a minute, with other values each time, are a loop. */
export const LOOP_RUNS = 10;
/** How many documents are remembered; beyond that, counting starts over. */
const MEMORY = 10_000;
/** Longer texts are kept as a digest of about this length. */
const LONGEST_TEXT = 24;

/** The fields of a snapshot, each with its value as a short text. */
type Digests = ReadonlyMap<string, string>;

interface Counter {
  readonly since: number;
  runs: number;
  /** Of the last run; absent after the first one, since most documents run once. */
  digests?: Digests;
}

/**
 * Finds handlers that write what they watch and would run forever: they run ten times within a minute for one document,
 * with other values each time. Keeps digests only: snapshots may be whole documents, and thousands are remembered.
 */
export class LoopDetector {
  readonly #counters = new Map<string, Counter>();

  /** Counts a run. Returns the fields that changed last if the handler seems to loop; once per document and minute. */
  looping({ id, lastObservedValues }: TaskRecord, now: number): readonly string[] | undefined {
    const counter = this.#counters.get(id);
    if (counter === undefined || now - counter.since > WINDOW_MS) {
      if (this.#counters.size >= MEMORY) this.#counters.clear();
      this.#counters.set(id, { since: now, runs: 1 });
      return undefined;
    }
    const before = counter.digests;
    const digests = digestsOf(lastObservedValues);
    const fields = before === undefined ? undefined : changedFields(before, digests);
    // A retry or a deferred run has unchanged values and does not count.
    if (fields?.length === 0) return undefined;
    counter.digests = digests;
    counter.runs += 1;
    return counter.runs === LOOP_RUNS ? fields : undefined;
  }
}

function digestsOf(values: unknown): Digests {
  const fields = typeof values === 'object' && values !== null ? Object.entries(values) : [];
  return new Map(fields.map(([field, value]) => [field, digestOf(value)]));
}

function digestOf(value: unknown): string {
  const replaced = (_key: string, item: unknown): unknown => (typeof item === 'bigint' ? String(item) : item);
  const text = (JSON.stringify(value, replaced) as string | undefined) ?? '';
  if (text.length <= LONGEST_TEXT) return text;
  return createHash('sha256').update(text).digest('base64').slice(0, LONGEST_TEXT);
}

const changedFields = (before: Digests, after: Digests): string[] =>
  [...new Set([...before.keys(), ...after.keys()])].filter((field) => before.get(field) !== after.get(field));
