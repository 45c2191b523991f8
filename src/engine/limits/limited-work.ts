import type { Clock } from '../../core/clock.js';
import { wasStarted, type Finished } from '../../core/records/outcome.js';
import type { Work } from '../../core/records/work.js';
import type { ScopeKind } from '../../store/port.js';
import { ClaimGate } from './claim-gate.js';
import type { EndedAs, Permits } from './permits.js';

export interface LimitedWorkOptions<W extends Work> {
  /** Absent if the store has no limits. */
  readonly permits: Permits | undefined;
  readonly clock: Clock;
  readonly kind: Exclude<ScopeKind, 'shared' | 'documents'>;
  /** All work that the engine holds, from its claim until it is recorded; some of it twice. */
  readonly held: () => Iterable<W>;
  readonly bar: (name: string, isBarred: boolean) => void;
}

interface Recorded<W extends Work> {
  readonly work: W;
  readonly how: EndedAs;
  readonly isStarted: boolean;
}

const endedAs = ({ outcome }: Finished): EndedAs => {
  if ('error' in outcome) return 'failed';
  return outcome.kind === 'returned' || outcome.kind === 'recorded' ? 'succeeded' : 'other';
};

/** The work of one engine, as limits see it: what it holds, and what of it has ended. */
export class LimitedWork<W extends Work> {
  readonly #options: LimitedWorkOptions<W>;
  readonly gate: ClaimGate | undefined;
  /** Recorded, but still counted as held until its batch of outcomes has ended. */
  #recorded: Recorded<W>[] = [];

  constructor(options: LimitedWorkOptions<W>) {
    this.#options = options;
    const { permits } = options;
    this.gate = permits && new ClaimGate({ ...options, permits, held: () => this.#counts() });
  }

  /** Its outcome is recorded. */
  recorded(work: W, finished: Finished): void {
    this.#ended({ work, how: endedAs(finished), isStarted: wasStarted(finished) });
  }

  /** Another instance has it, or it was removed. Not started: its handler was never called here. */
  lost(work: W, isStarted: boolean): void {
    this.#ended({ work, how: 'other', isStarted });
  }

  /** This instance has recorded the end of work that another one held: a crash is a failed attempt. */
  handedOn({ name }: W, { outcome }: Finished): void {
    if (outcome.kind === 'crashed') this.gate?.crashed(name);
  }

  /** Tells the gate of what has ended and is not held any more. */
  tell(isMeant: (work: W) => boolean = () => true): void {
    const ended = this.#recorded.filter(({ work }) => isMeant(work));
    if (ended.length === 0) return;
    this.#recorded = this.#recorded.filter(({ work }) => !isMeant(work));
    for (const { work, how, isStarted } of ended) this.gate?.ended(work, how, isStarted);
  }

  #ended(ended: Recorded<W>): void {
    if (this.gate?.concerns(ended.work) === true) this.#recorded.push(ended);
  }

  /** How many pieces of work of each name the engine holds. */
  #counts(): ReadonlyMap<string, number> {
    const names = new Map<string, string>();
    for (const { id, name } of this.#options.held()) names.set(id, name);
    const counts = new Map<string, number>();
    for (const name of names.values()) counts.set(name, (counts.get(name) ?? 0) + 1);
    return counts;
  }
}
