import type { Reading, Source } from './reading.js';
import { CHANGED, type Stored, type StoreRecorder } from './storing.js';

const MOST_EXAMPLES = 5;

export interface Group {
  readonly reason: string;
  readonly count: number;
  /** The first records, as the source names them, some with what exactly is the matter. */
  readonly examples: readonly string[];
}

/** Counts records by reason, and keeps some examples of each. */
type Tally = Map<string, { count: number; examples: string[] }>;

function add(tally: Tally, reason: string, key: string, detail?: string): void {
  const group = tally.get(reason) ?? { count: 0, examples: [] };
  tally.set(reason, group);
  group.count += 1;
  if (group.examples.length < MOST_EXAMPLES)
    group.examples.push(detail === undefined ? key : `${key}: ${detail}`);
}

const final = (reason: string): Stored => ({ outcome: 'left', reason, isFinal: true });

/** The largest first. */
const groupsOf = (tally: Tally): readonly Group[] =>
  [...tally].map(([reason, group]) => ({ reason, ...group })).sort((a, b) => b.count - a.count);

export interface RunnerOptions {
  readonly source: Source;
  readonly storing: StoreRecorder;
  /** Only work of these names; undefined: all. */
  readonly names: readonly string[] | undefined;
  readonly dryRun: boolean;
  readonly move: boolean;
}

/** What was done so far. `here` counts what earlier runs have stored. */
export interface Results {
  readonly jobs: { readonly created: number; readonly failed: number; readonly here: number };
  readonly schedules: { readonly created: number; readonly here: number };
  readonly served: number;
  readonly otherNames: number;
  readonly removed: number;
  readonly differs: readonly Group[];
  readonly left: readonly Group[];
}

type Storable = Extract<Reading, { kind: 'job' | 'schedule' }>;
const isStorable = (reading: Reading): reading is Storable =>
  reading.kind === 'job' || reading.kind === 'schedule';

/**
 * Reads a source page by page, stores what can be stored, and removes it from the source if that was asked for. A pass
 * may be repeated, by the same process or another one.
 */
export class Runner {
  readonly #options: RunnerOptions;
  readonly #differs: Tally = new Map();
  readonly #left: Tally = new Map();
  /** Records that later passes skip, so they do not clear this. */
  readonly #final: Tally = new Map();
  readonly #counts = { created: 0, failed: 0, here: 0, schedules: 0, schedulesHere: 0, removed: 0 };
  #served = 0;
  #otherNames = 0;
  /**
   * What later passes of this process skip, whatever becomes of it here, unless it changes there: by key, its version, or
   * null once it was listed.
   */
  readonly #done = new Map<string, string | null>();
  /** What changed while it was moved, and is tried once more. */
  readonly #undone = new Set<string>();

  constructor(options: RunnerOptions) {
    this.#options = options;
  }

  get results(): Results {
    const { created, failed, here, schedules, schedulesHere, removed } = this.#counts;
    return {
      jobs: { created, failed, here },
      schedules: { created: schedules, here: schedulesHere },
      served: this.#served,
      otherNames: this.#otherNames,
      removed,
      differs: groupsOf(this.#differs),
      left: [...groupsOf(this.#left), ...groupsOf(this.#final)],
    };
  }

  /** One pass through the source. `progress` gets the number of records read; it ends early if `stop` aborts. */
  async pass(stop: AbortSignal, progress: (read: number) => void): Promise<void> {
    this.#left.clear();
    this.#served = 0;
    this.#otherNames = 0;
    let read = 0;
    for await (const page of this.#options.source.read(new Date())) {
      await this.#take(page);
      read += page.length;
      progress(read);
      if (stop.aborted) return;
    }
  }

  async #take(page: readonly Reading[]): Promise<void> {
    const { names, storing, dryRun } = this.#options;
    const wanted = page.filter(({ name }) => names?.includes(name) ?? true);
    this.#otherNames += page.length - wanted.length;
    const open: Storable[] = [];
    for (const reading of wanted) {
      if (reading.kind === 'left') add(this.#left, reading.reason, reading.key, reading.detail);
      if (reading.kind === 'served') {
        this.#served += 1;
        for (const differs of reading.differs ?? []) add(this.#left, differs, reading.key);
      }
      if (!isStorable(reading) || this.#isDone(reading)) continue;
      const refused = storing.refusal(reading);
      if (refused === undefined) open.push(reading);
      else this.#note(reading, refused);
    }
    if (dryRun) for (const reading of open) this.#note(reading, { outcome: 'created' });
    else await this.#store(open);
  }

  /** A record that was stored and has changed there is listed once: what is stored here may be running. */
  #isDone({ key, record }: Storable): boolean {
    const done = this.#done.get(key);
    if (done === undefined) return false;
    if (done !== null && done !== this.#options.source.version(record)) {
      this.#done.set(key, null);
      add(this.#final, CHANGED, key);
    }
    return true;
  }

  async #store(readings: readonly Storable[]): Promise<void> {
    const jobs = readings.filter((reading) => reading.kind === 'job');
    const stored = new Map<Storable, Stored>();
    const answers = await this.#options.storing.jobs(jobs);
    for (const [at, reading] of jobs.entries()) stored.set(reading, answers[at] as Stored);
    for (const reading of readings)
      if (reading.kind === 'schedule') stored.set(reading, await this.#options.storing.schedule(reading));
    const { move, source } = this.#options;
    if (move) await this.#move(stored);
    for (const [reading, answer] of stored) {
      this.#note(reading, answer);
      // What was moved is gone there: a record of its key is a new one.
      if (answer.outcome !== 'left' && !move) this.#done.set(reading.key, source.version(reading.record));
      if (answer.outcome === 'left' && answer.isFinal === true) this.#done.set(reading.key, null);
    }
  }

  /** Removes from the source what is stored here. What has changed there since stays there, and is taken out here. */
  async #move(stored: Map<Storable, Stored>): Promise<void> {
    const { source, storing } = this.#options;
    await this.#compare(stored);
    const moving = [...stored].filter(([, { outcome }]) => outcome !== 'left');
    const removed = await source.remove(moving.map(([{ record }]) => record));
    for (const [at, [reading, { outcome }]] of moving.entries()) {
      if (removed[at] === true) {
        this.#counts.removed += 1;
        continue;
      }
      const undone = outcome === 'created' && (await storing.undo(reading));
      stored.set(reading, undone ? this.#again(reading.key) : final(CHANGED));
    }
  }

  /** What an earlier run has stored may be another record by now, which would be lost with the old one. */
  async #compare(stored: Map<Storable, Stored>): Promise<void> {
    const here = [...stored].filter(([, { outcome }]) => outcome === 'here');
    const changes = await Promise.all(here.map(([reading]) => this.#options.storing.changed(reading)));
    for (const [at, [reading]] of here.entries()) {
      const reason = changes[at];
      if (reason !== undefined) stored.set(reading, final(reason));
    }
  }

  /** The next pass takes a record again that changed while it was moved; if it changes once more, no other does. */
  #again(key: string): Stored {
    const reason = 'it changed there while it was moved, and was left there; run the command again';
    if (this.#undone.has(key)) return final(reason);
    this.#undone.add(key);
    return { outcome: 'left', reason };
  }

  #note(reading: Storable, answer: Stored): void {
    if (answer.outcome === 'left') {
      add(answer.isFinal === true ? this.#final : this.#left, answer.reason, reading.key, answer.detail);
      return;
    }
    const isNew = answer.outcome === 'created';
    if (reading.kind === 'schedule') this.#counts[isNew ? 'schedules' : 'schedulesHere'] += 1;
    else if (!isNew) this.#counts.here += 1;
    else this.#counts[reading.job.past?.failed === true ? 'failed' : 'created'] += 1;
    if (!isNew) return;
    for (const differs of reading.differs ?? []) add(this.#differs, differs, reading.key);
    if (answer.differs !== undefined) add(this.#differs, answer.differs, reading.key);
  }
}
