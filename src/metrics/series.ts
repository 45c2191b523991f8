import { OptionError } from '../core/errors.js';
import { checkDate, checkKeys, checkOneOf, checkText, show } from '../core/options.js';
import { KEEP_MINUTES_MS, MINUTE_MS, type MeasuredKind, type SeriesPoint } from '../store/metrics.js';
import type { Store } from '../store/port.js';

export interface SeriesOptions {
  /** The first minute. Default: one hour before `to`. */
  readonly from?: Date;
  /** The last minute. Default: the current one. */
  readonly to?: Date;
  /** Only this kind of work. Default: all kinds. */
  readonly kind?: MeasuredKind;
  /** Only work of this name. Default: all names. */
  readonly name?: string;
}

const WHERE = 'metrics.series';
const KINDS = ['job', 'task', 'document'] as const;
const DEFAULT_MS = 3_600_000;

/** The activity of the cluster, minute by minute, for the last day. */
export class Metrics {
  readonly #store: () => Promise<Store>;

  constructor(store: () => Promise<Store>) {
    this.#store = store;
  }

  /**
   * Returns the activity over all instances, one point per minute and name with any activity, ordered by time, kind and
   * name. The current minute is still growing, and the last few seconds may be missing.
   */
  async series(options: SeriesOptions = {}): Promise<readonly SeriesPoint[]> {
    checkKeys(WHERE, options, ['from', 'to', 'kind', 'name']);
    const { kind, name } = options;
    if (kind !== undefined) checkOneOf(WHERE, 'kind', kind, KINDS);
    if (name !== undefined) checkText(WHERE, 'name', name);
    const { metrics, clock } = await this.#store();
    const now = clock.now();
    const to = options.to === undefined ? new Date(now) : checkDate(WHERE, 'to', options.to);
    const from =
      options.from === undefined
        ? new Date(to.getTime() - DEFAULT_MS)
        : checkDate(WHERE, 'from', options.from);
    if (from > to)
      throw new OptionError(`${WHERE}: from (${show(from)}) must not be after to (${show(to)}).`);
    // Older minutes have expired, even if the store has not deleted them yet.
    const first = Math.max(Math.floor(from.getTime() / MINUTE_MS) * MINUTE_MS, now - KEEP_MINUTES_MS);
    return metrics.series({
      from: new Date(first),
      to,
      ...(kind === undefined ? {} : { kind }),
      ...(name === undefined ? {} : { name }),
    });
  }
}
