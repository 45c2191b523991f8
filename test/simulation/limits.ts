import type { KeyedLimits, SharedLimitOptions } from '../../src/index.js';
import type { BreakerState } from '../../src/store/port.js';
import { toMs } from '../../src/time/duration.js';

/** A limit that several names share. */
export const GATE = 'gate';
export const GATE_LIMITS: SharedLimitOptions = { concurrency: 3, rate: { limit: 8, per: '2s', burst: 4 } };

/** By name: jobs whose payload is `{ key }`. */
export const LIMITS: Readonly<Record<string, KeyedLimits>> = {
  capped: { concurrency: 2, shared: [GATE] },
  paced: { rate: { limit: 4, per: '2s', burst: 2 } },
  tenant: {
    perKey: { key: 'key', concurrency: 2, rate: { limit: 3, per: '2s', burst: 2 } },
    shared: [GATE],
  },
  ordered: { perKey: { key: 'key', order: 'fifo' } },
  passing: { perKey: { key: 'key', order: 'fifo', whileRetrying: 'pass' } },
  guarded: { shared: [GATE] },
};
export const LIMITED_NAMES: readonly string[] = Object.keys(LIMITS);
export const KEYS: readonly string[] = ['a', 'b', 'c'];

/** The name that has a breaker. Its pause is longer than a permit holds, so claims from before it have ended by then. */
export const GUARDED = 'guarded';
export const BREAKER = { failures: 2, within: '4s', pause: '3s' } as const;
const PERMIT_MS = 2_000;

/** What the judge needs to know of a job. */
export interface LimitedJob {
  readonly id: string;
  readonly name: string;
  readonly limitKey?: string;
  readonly limitOrder?: string;
  readonly nextRunAt: Date;
}

interface Known {
  readonly name: string;
  readonly key: string;
  readonly order: string;
  dueAt: number;
  isHeld: boolean;
  /** When it was claimed last, and whether its handler has begun since. */
  claimedAt: number;
  hasBegun: boolean;
}

/** What may be held at once, and may start in a window, of something that is limited. */
interface Bound {
  readonly what: string;
  readonly concurrency: number;
  readonly starts?: { readonly limit: number; readonly perMs: number };
}

interface Use {
  readonly held: Set<string>;
  /** The times of the starts of the last window. */
  starts: number[];
}

interface LimitJudgeHost {
  readonly now: () => number;
  readonly violated: (what: string) => void;
  readonly count: (what: string) => void;
}

/**
 * Watches limits from the outside. Work counts from the write that claims it until the one that records its outcome,
 * whoever writes that; a start is a claim. It knows nothing of permits.
 */
export class LimitJudge {
  readonly #host: LimitJudgeHost;
  /** Live jobs of limited names. */
  readonly #jobs = new Map<string, Known>();
  readonly #uses = new Map<string, Use>();
  /** Since the breaker has opened. */
  #opened: { readonly at: number; readonly trials: Set<string>; starts: number } | undefined;

  constructor(host: LimitJudgeHost) {
    this.#host = host;
  }

  created({ id, name, limitKey = '', limitOrder = '', nextRunAt }: LimitedJob, isHeld: boolean): void {
    if (LIMITS[name] === undefined) return;
    const dueAt = nextRunAt.getTime();
    const job = {
      name,
      key: limitKey,
      order: limitOrder,
      dueAt,
      isHeld: false,
      claimedAt: 0,
      hasBegun: false,
    };
    this.#jobs.set(id, job);
    if (isHeld) this.claimed(id);
  }

  claimed(id: string): void {
    const job = this.#jobs.get(id);
    if (job === undefined) return;
    this.#checkOrder(id, job);
    Object.assign(job, { isHeld: true, claimedAt: this.#host.now(), hasBegun: false });
    for (const bound of boundsOf(job)) this.#start(id, bound);
    if (job.name === GUARDED) this.#checkBreaker(id);
  }

  /** Its handler was called. */
  began(id: string): void {
    const job = this.#jobs.get(id);
    if (job !== undefined) job.hasBegun = true;
  }

  /**
   * Its outcome is recorded, by its holder or another. `dueAt`: when it is due again; undefined: as before. A claim whose
   * handler was never called is no start, whoever says so.
   */
  settled(id: string, status: string, dueAt: number | undefined): void {
    const job = this.#jobs.get(id);
    if (job === undefined) return;
    for (const { what } of boundsOf(job)) {
      const use = this.#uses.get(what);
      use?.held.delete(id);
      if (!job.hasBegun && use?.starts.includes(job.claimedAt) === true)
        use.starts.splice(use.starts.indexOf(job.claimedAt), 1);
    }
    if (status === 'pending') Object.assign(job, { isHeld: false, dueAt: dueAt ?? job.dueAt });
    else this.#jobs.delete(id);
  }

  /** The breaker, as an exchange left it. `trial` names the grant that let one start through, if it did. */
  breaker({ state }: BreakerState, trial: string | undefined): void {
    if (state === 'closed') this.#opened = undefined;
    else if (this.#opened === undefined) {
      this.#host.count('breaker opened');
      this.#opened = { at: this.#host.now(), trials: new Set(), starts: 0 };
    }
    if (trial === undefined || this.#opened?.trials.has(trial) !== false) return;
    this.#host.count('breaker trial');
    this.#opened.trials.add(trial);
  }

  #start(id: string, { what, concurrency, starts }: Bound): void {
    const { count, violated, now } = this.#host;
    const use = this.#uses.get(what) ?? { held: new Set(), starts: [] };
    this.#uses.set(what, use);
    use.held.add(id);
    if (use.held.size === concurrency) count('concurrency reached');
    if (use.held.size > concurrency)
      violated(
        `${String(use.held.size)} of ${what} are held, and ${String(concurrency)} may be: ${[...use.held].join()}`,
      );
    if (starts === undefined) return;
    use.starts = [...use.starts.filter((at) => at > now() - starts.perMs), now()];
    if (use.starts.length === starts.limit) count('rate reached');
    if (use.starts.length > starts.limit)
      violated(
        `${what} started ${String(use.starts.length)} times in ${String(starts.perMs)} ms, and ${String(starts.limit)} is its limit: ${use.starts.join()}`,
      );
  }

  /** The jobs of a key run one at a time, in their order. */
  #checkOrder(id: string, job: Known): void {
    const perKey = LIMITS[job.name]?.perKey;
    if (perKey?.order === undefined) return;
    const isWaiting = ({ isHeld, dueAt }: Known): boolean =>
      !isHeld && (perKey.whileRetrying !== 'pass' || dueAt <= this.#host.now());
    for (const [otherId, other] of this.#jobs)
      if (other.name === job.name && other.key === job.key && other.order < job.order && isWaiting(other))
        this.#host.violated(`${job.name} ${id} of key ${job.key} was claimed before ${otherId}`);
  }

  /** Beyond what was granted before it opened, only trials start. */
  #checkBreaker(id: string): void {
    const opened = this.#opened;
    if (opened === undefined || this.#host.now() <= opened.at + PERMIT_MS) return;
    opened.starts += 1;
    if (opened.starts > opened.trials.size)
      this.#host.violated(
        `${GUARDED} ${id} started although its breaker is open: start ${String(opened.starts)} after ${String(opened.trials.size)} trials`,
      );
  }
}

/** Everything that limits a job. */
function boundsOf({ name, key }: Known): readonly Bound[] {
  const { perKey, shared = [], ...own } = LIMITS[name] ?? {};
  const keyed = perKey?.order === undefined ? perKey : { concurrency: 1 };
  return [
    boundOf(name, own),
    ...(keyed === undefined ? [] : [boundOf(`${name} of key ${key}`, keyed)]),
    ...shared.map((one) => boundOf(one, GATE_LIMITS)),
  ];
}

const boundOf = (what: string, { concurrency, rate }: Pick<KeyedLimits, 'concurrency' | 'rate'>): Bound => ({
  what,
  concurrency: concurrency ?? Infinity,
  ...(rate === undefined
    ? {}
    : { starts: { limit: rate.limit, perMs: toMs('simulation', 'per', rate.per) } }),
});
