import type { Work } from '../../core/records/work.js';
import { concludeStored } from '../../store/helpers/conclude-stored.js';
import { leaseOf, type SettleAnswer, type WorkStore } from '../../store/port.js';
import type { Conclusion, Settling, WorkRunner } from '../work-runner.js';
import type { BatchWriter, Written } from './batch-recorder.js';

/** How often an outcome is made smaller: first to a failure with a short reason, then to the state alone. */
const MOST_REFUSALS = 2;

export interface SettlerOptions<W extends Work, S> {
  readonly store: Pick<WorkStore<W, S>, 'settle' | 'held' | 'insertFailedRun'>;
  readonly runner: Pick<WorkRunner<W, S>, 'conclude' | 'recorded'>;
  /** The work was taken over or removed before its outcome was recorded. */
  readonly lost: (settling: Settling<W>) => void;
}

/** Concludes and settles the outcomes of jobs or reactive tasks, for a `BatchRecorder`. */
export class Settler<W extends Work, S> implements BatchWriter<Settling<W>> {
  readonly #options: SettlerOptions<W, S>;

  constructor(options: SettlerOptions<W, S>) {
    this.#options = options;
  }

  async write(batch: readonly Settling<W>[]): Promise<readonly Written<Settling<W>>[]> {
    const { store, runner } = this.#options;
    const conclusions: Conclusion<S>[] = [];
    for (const { work, finished, extra, refusals = 0 } of batch) {
      const about = { refusals, ...(extra === undefined ? {} : { extra }) };
      conclusions.push(await concludeStored(store, runner, { work, finished, about }));
    }
    for (const [index, { failedRun }] of conclusions.entries()) {
      if (failedRun !== undefined)
        await store.insertFailedRun?.((batch[index] as Settling<W>).work, failedRun);
    }
    const answers = await store.settle(conclusions.map((conclusion) => conclusion.settlement));
    return this.#reread(
      batch.map((settling, index) =>
        this.#answered(settling, conclusions[index] as Conclusion<S>, answers[index] as SettleAnswer),
      ),
    );
  }

  /** Replaces an outcome that the database will never take by a failure with a short reason, without result and notes. */
  smaller({ work, finished, refusals = 0 }: Settling<W>): Settling<W> | undefined {
    if (refusals >= MOST_REFUSALS) return undefined;
    const error = new Error(
      'The result, progress and log of this job together exceed what the database can hold.',
    );
    Reflect.deleteProperty(error, 'stack');
    return { work, refusals: refusals + 1, finished: { ...finished, outcome: { kind: 'threw', error } } };
  }

  nameOf({ work: { name, id } }: Settling<W>): { readonly name: string; readonly id: string } {
    return { name, id };
  }

  #answered(settling: Settling<W>, conclusion: Conclusion<S>, answer: SettleAnswer): Written<Settling<W>> {
    const { runner, lost } = this.#options;
    switch (answer) {
      case 'settled':
        runner.recorded(settling.work, settling.finished, conclusion);
        return 'done';
      case 'lost':
        lost(settling);
        return 'done';
      case 'blocked':
        return 'blocked';
      case 'changed':
        return { again: settling };
      case 'refused': {
        const again = this.smaller(settling);
        return again === undefined ? 'refused' : { again };
      }
    }
  }

  /** Reads work whose outcome is written again, so that it is concluded from its current state. */
  async #reread(written: readonly Written<Settling<W>>[]): Promise<readonly Written<Settling<W>>[]> {
    const again = written.flatMap((answer) => (typeof answer === 'string' ? [] : [answer.again]));
    if (again.length === 0) return written;
    const works = await this.#options.store.held(again.map(({ work }) => leaseOf(work)));
    const current = new Map(again.map((settling, index) => [settling, works[index]]));
    return written.map((answer) => {
      if (typeof answer === 'string') return answer;
      const work = current.get(answer.again);
      if (work !== undefined) return { again: { ...answer.again, work } };
      this.#options.lost(answer.again);
      return 'done';
    });
  }
}
