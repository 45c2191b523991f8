import type { Verdict } from './simulate.js';

interface State {
  readonly seeds: number;
  readonly failed: number;
  readonly slowestMs: number;
  readonly cpuMs: number;
  readonly counts: readonly (readonly [what: string, count: number])[];
}

const isState = (value: unknown): value is State =>
  typeof value === 'object' && value !== null && 'counts' in value;

/** The totals of many runs. */
export class Tally {
  readonly #began = process.cpuUsage();
  readonly #counts = new Map<string, number>();
  #seeds = 0;
  #failed = 0;
  #slowestMs = 0;
  #cpuMs = 0;

  get failed(): number {
    return this.#failed;
  }

  add({ counts, violations, healedMs }: Verdict): void {
    this.#seeds += 1;
    if (violations.length > 0) this.#failed += 1;
    else this.#slowestMs = Math.max(this.#slowestMs, healedMs);
    for (const [what, count] of counts) this.#count(what, count);
  }

  /** Adds the counts of a worker. */
  merge(state: unknown): void {
    if (!isState(state)) throw new Error(`A worker sent ${JSON.stringify(state)}.`);
    this.#seeds += state.seeds;
    this.#failed += state.failed;
    this.#cpuMs += state.cpuMs;
    this.#slowestMs = Math.max(this.#slowestMs, state.slowestMs);
    for (const [what, count] of state.counts) this.#count(what, count);
  }

  get state(): State {
    const { user, system } = process.cpuUsage(this.#began);
    return {
      seeds: this.#seeds,
      failed: this.#failed,
      slowestMs: this.#slowestMs,
      cpuMs: this.#cpuMs + (user + system) / 1_000,
      counts: [...this.#counts],
    };
  }

  get text(): string {
    const { seeds, failed, slowestMs, cpuMs } = this.state;
    const counts = [...this.#counts].sort().map(([what, count]) => `${what}: ${String(count)}`);
    return [
      counts.join(', '),
      `${String(seeds)} seeds, ${String(failed)} failed; all done at most ${(slowestMs / 1_000).toFixed(1)} s after the last fault; ` +
        `${(cpuMs / 1_000).toFixed(1)} s of CPU`,
    ].join('\n');
  }

  #count(what: string, count: number): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + count);
  }
}
