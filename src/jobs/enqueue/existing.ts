import { OptionError } from '../../core/errors.js';
import { checkKeys, checkOneOf, show } from '../../core/options.js';
import type { NewJob, OnExisting, Store } from '../../store/port.js';
import { toMs, type Duration } from '../../time/duration.js';

/** How `debounce` of `enqueue` waits for further calls. */
export interface DebounceOptions {
  /** The job is due this long after the last call. */
  readonly wait: Duration;
  /** The job is due at most this long after the first call. Default: 5 times `wait`. */
  readonly maxWait?: Duration;
}

/** Options of `enqueue` that few calls have. */
export interface ExistingOptions {
  /**
   * What happens to a pending job with the `uniqueKey`. `keep` leaves it as it is. `replace` gives it this payload, these
   * options and a fresh sequence of attempts. `reschedule` changes its due time only. If that job is running, `replace`
   * stores a successor, which starts when it has ended, and the others leave it as it is. Default: 'keep'.
   */
  readonly onExisting?: 'keep' | 'replace' | 'reschedule';
  /**
   * As `onExisting: 'replace'`, due `wait` after the last call and at most `maxWait` after the first: of many calls, the
   * job runs once, with the newest payload. Needs `uniqueKey`; cannot be combined with `delay`, `runAt` or `onExisting`.
   * Default: none.
   */
  readonly debounce?: DebounceOptions;
  /**
   * A job that has not started this long after its due time is cancelled, with the `failReason` `expired`. Default: the
   * definition's.
   */
  readonly expireIn?: Duration;
}

/** With the options that decide whether they are allowed. */
interface Given extends ExistingOptions {
  readonly uniqueKey?: string;
  readonly runAt?: Date;
  readonly delay?: Duration;
}

interface Facts {
  readonly now: number;
  /** As `runAt` and `delay` say. */
  readonly nextRunAt: Date;
  /** The definition's. */
  readonly expireInMs: number | undefined;
}

const MOST_WAITS = 5;

/** Reads the options that few calls have: `onExisting`, `debounce` and `expireIn`. */
export function existingOf(
  where: string,
  { jobs, kind }: Store,
  options: Given,
  facts: Facts,
): Pick<NewJob, 'nextRunAt' | 'onExisting' | 'startBy'> {
  const { debounce } = options;
  const onExisting = debounce === undefined ? modeOf(where, options) : debounceOf(where, options, debounce);
  const nextRunAt =
    onExisting?.kind === 'debounce' ? new Date(facts.now + onExisting.waitMs) : facts.nextRunAt;
  const expireInMs =
    options.expireIn === undefined ? facts.expireInMs : toMs(where, 'expireIn', options.expireIn, 1);
  const isMissing =
    (onExisting !== undefined && jobs.releaseSuccessors === undefined) ||
    (expireInMs !== undefined && jobs.expire === undefined);
  if (isMissing)
    throw new OptionError(
      `${where}: the ${kind} store has no onExisting, debounce and expireIn; leave them out.`,
    );
  return {
    nextRunAt,
    ...(onExisting === undefined ? {} : { onExisting }),
    ...(expireInMs === undefined ? {} : { startBy: new Date(nextRunAt.getTime() + expireInMs) }),
  };
}

function modeOf(where: string, options: Given): OnExisting | undefined {
  const { onExisting = 'keep' } = options;
  const kind = checkOneOf(where, 'onExisting', onExisting, ['keep', 'replace', 'reschedule'] as const);
  if (options.onExisting === undefined) return undefined;
  needKey(where, 'onExisting', options);
  return kind === 'keep' ? undefined : { kind };
}

function debounceOf(where: string, options: Given, debounce: DebounceOptions): OnExisting {
  for (const other of ['delay', 'runAt', 'onExisting'] as const)
    if (options[other] !== undefined)
      throw new OptionError(
        `${where}: debounce sets the due time and replaces the pending job; leave out ${other}.`,
      );
  needKey(where, 'debounce', options);
  const at = `${where}.debounce`;
  checkKeys(at, debounce, ['wait', 'maxWait']);
  const { wait, maxWait } = debounce;
  const waitMs = toMs(at, 'wait', wait, 1);
  const maxWaitMs = maxWait === undefined ? MOST_WAITS * waitMs : toMs(at, 'maxWait', maxWait, 1);
  if (maxWaitMs < waitMs)
    throw new OptionError(`${at}: maxWait (${show(maxWait)}) must not be shorter than wait (${show(wait)}).`);
  return { kind: 'debounce', waitMs, maxWaitMs };
}

function needKey(where: string, option: string, { uniqueKey }: Given): void {
  if (uniqueKey === undefined)
    throw new OptionError(`${where}: ${option} needs a uniqueKey, which names the job to look for.`);
}
