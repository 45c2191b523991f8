import type { Clock } from '../../src/core/clock.js';
import type { DocumentJob, JobStore } from '../../src/documents/index.js';

export type OwnJob = { -readonly [K in keyof DocumentJob]: DocumentJob[K] };

const isDue = (sleepUntil: unknown, now: number): boolean =>
  sleepUntil !== null && sleepUntil !== undefined && Number(new Date(sleepUntil as Date)) <= now;

/** A user's own store: three methods on a Map. It also records the calls it gets. */
export class OwnStore implements JobStore {
  readonly jobs = new Map<unknown, OwnJob>();
  readonly calls: string[] = [];
  /** The locks that calls asked for, and the values that writes had to match. */
  readonly locks: Date[] = [];
  readonly fences: unknown[] = [];
  readonly #clock: Pick<Clock, 'now'>;
  /** Called before each method; may throw, or take its time. */
  before: (method: string) => unknown = () => undefined;
  /** Called after each method has done its work; if it throws, the response is lost. */
  after: (method: string) => unknown = () => undefined;

  constructor(clock: Pick<Clock, 'now'> = { now: () => Date.now() }) {
    this.#clock = clock;
  }

  insert(job: Partial<OwnJob>): OwnJob {
    const kept = { id: `job-${String(this.jobs.size + 1)}`, sleepUntil: new Date(this.#clock.now()), ...job };
    this.jobs.set(kept.id, kept);
    return kept;
  }

  async lockNext(lockUntil: Date): Promise<DocumentJob | null> {
    this.locks.push(lockUntil);
    return this.#call('lockNext', () => {
      const now = this.#clock.now();
      const due = [...this.jobs.values()]
        .filter(({ sleepUntil }) => isDue(sleepUntil, now))
        .sort((a, b) => Number(a.sleepUntil) - Number(b.sleepUntil));
      const [job] = due;
      if (job === undefined) return null;
      const before = { ...job };
      job.sleepUntil = lockUntil;
      return before;
    });
  }

  async update(
    id: unknown,
    changes: Partial<OwnJob>,
    { ifSleepUntil }: { ifSleepUntil?: Date | null },
  ): Promise<boolean> {
    this.fences.push(ifSleepUntil);
    return this.#call('update', () => {
      const job = this.#holding(id, ifSleepUntil);
      if (job === undefined) return false;
      for (const [field, value] of Object.entries(changes))
        if (value !== undefined) Reflect.set(job, field, value);
      return true;
    });
  }

  async remove(id: unknown, { ifSleepUntil }: { ifSleepUntil?: Date | null }): Promise<boolean> {
    return this.#call('remove', () => this.#holding(id, ifSleepUntil) !== undefined && this.jobs.delete(id));
  }

  #holding(id: unknown, ifSleepUntil: Date | null | undefined): OwnJob | undefined {
    const job = this.jobs.get(id);
    const matches = ifSleepUntil === undefined || job?.sleepUntil?.getTime() === ifSleepUntil?.getTime();
    return matches ? job : undefined;
  }

  async #call<T>(method: string, work: () => T): Promise<T> {
    this.calls.push(method);
    await this.before(method);
    const answer = work();
    await this.after(method);
    return answer;
  }
}
