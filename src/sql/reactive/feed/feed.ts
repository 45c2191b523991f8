import { Backoff } from '../../../core/backoff.js';
import { pause } from '../../../core/clock.js';
import { OptionError, StoreError } from '../../../core/errors.js';
import type { Partition } from '../../../store/reactive/partitions.js';
import {
  HistoryLostError,
  type Feed,
  type FeedEvent,
  type FeedRequest,
  type Term,
} from '../../../store/reactive/reactive.js';
import type { Listening, Queryable } from '../../connection/driver.js';
import { run } from '../../connection/errors.js';
import { ChangeReader, type Noted } from './changes.js';
import { resumeCapture } from './outbox.js';
import { SequenceGaps, Position } from './sequence-gaps.js';
import { tablesOf } from '../partition.js';
import { namesOf } from '../place.js';
import { captureOf, signatureOf } from '../../tables/shape.js';
import type { SqlSources } from '../sources.js';

const PAGE = 1_000;
/** The wait between reads that find nothing. */
const READ_MS = { min: 5, max: 1_000 };
/** After this long without a change the feed asks writers to wake it. */
const IDLE_MS = 40;
/** After more changes than this at once, or pages less than `IDLE_MS` apart, writers need not wake it any more. */
const FEW = 10;
/** How often it checks whether tables were altered, dropped or recreated. */
const INSPECT_MS = 5_000;

/**
 * Follows the changes that triggers record, and what happens to the tables themselves. Writers wake it only while it
 * asks them to, since PostgreSQL serializes the commits of transactions that notify. Polling finds everything.
 */
class TableFeed implements Feed {
  readonly #sources: SqlSources;
  readonly #collections: readonly string[];
  readonly #term: Term;
  readonly #partition: Partition;
  readonly #gaps = new SequenceGaps();
  readonly #reader: ChangeReader;
  readonly #closed = new AbortController();
  #queue: (FeedEvent & { readonly token: Position })[] = [];
  #bySource: ReadonlyMap<string, readonly string[]> = new Map();
  /**
   * Sources of triggers that no task here uses. If one becomes ours, an inspection finds it and asks for a
   * reconciliation.
   */
  readonly #strangers = new Set<string>();
  /** The last known state of each table, so that each fault is reported once. */
  readonly #seen = new Map<string, string>();
  #listening: Listening | undefined;
  #wake: (() => void) | undefined;
  #woken = false;
  #armed = false;
  readonly #waits = new Backoff(READ_MS);
  #waitMs = this.#waits.next();
  #readAt = -Infinity;
  #inspectedAt = -Infinity;
  /** The caller has received every change before this position. */
  #arrived: Position;
  /** The position of the event that was returned last. */
  #returned: Position;

  constructor(sources: SqlSources, { collections, term }: FeedRequest, partition: Partition) {
    this.#partition = partition;
    this.#sources = sources;
    this.#collections = collections;
    this.#term = term;
    this.#reader = new ChangeReader(sources.sql, this.#gaps, PAGE, partition);
    this.#arrived = this.#returned = new Position(this.#gaps, 0);
  }

  get token(): Position {
    return this.#arrived;
  }

  async open(): Promise<this> {
    // A leader that died may have left the flag set.
    await this.#arm(false);
    await this.#resume();
    await this.#inspect();
    return this;
  }

  async next(): Promise<FeedEvent> {
    this.#arrived = this.#returned;
    for (;;) {
      const event = this.#queue.shift();
      if (event !== undefined) {
        this.#returned = event.token;
        return event;
      }
      this.#allArrived();
      await run('read changes', () => this.#look());
    }
  }

  async close(): Promise<void> {
    this.#closed.abort();
    this.#wake?.();
    await this.#listening?.close().catch(() => undefined);
    if (this.#armed) await this.#arm(false).catch(() => undefined);
  }

  /** Nothing is left to return: every change that was read belongs to no followed table, or has been received. */
  #allArrived(): void {
    const { end } = this.#gaps;
    if (end > this.#arrived.place) this.#arrived = this.#returned = new Position(this.#gaps, end);
  }

  async #look(): Promise<void> {
    const { clock } = this.#sources.sql;
    if (this.#closed.signal.aborted) throw new StoreError('watch: the feed was closed.', { transient: true });
    if (clock.monotonic() - this.#inspectedAt >= INSPECT_MS) {
      await this.#resume();
      await this.#inspect();
    }
    const noted = await this.#reader.read();
    if (noted.length > 0) {
      await this.#deliver(noted);
      await this.#busy(noted.length);
    } else if (this.#queue.length === 0 && !this.#reader.isFull) await this.#idle();
  }

  /** The leader of partition 0 does this for all. */
  async #resume(): Promise<void> {
    if (this.#partition.index > 0) return;
    const limit = await resumeCapture(this.#sources.sql, this.#term);
    if (limit !== undefined)
      throw new HistoryLostError(
        `The outbox reached its limit of ${String(limit)} changes, and later changes were not recorded.`,
      );
  }

  /** An unknown source may belong to triggers that were made a moment ago. */
  async #deliver(noted: readonly Noted[]): Promise<void> {
    if (noted.some(({ source }) => !this.#bySource.has(source) && !this.#strangers.has(source))) {
      await this.#inspect();
      for (const { source } of noted) if (!this.#bySource.has(source)) this.#strangers.add(source);
    }
    const first = this.#gaps.end - noted.length;
    for (const [index, { source, key, kind, at }] of noted.entries()) {
      const position = (read: number): Position => new Position(this.#gaps, first + index + read);
      const collections = this.#bySource.get(source) ?? [];
      if (kind === 'truncate') this.#queue.push({ kind: 'upheaval', collections, token: position(1) });
      else
        for (const [nth, collection] of collections.entries())
          this.#queue.push({
            kind: 'change',
            change: { collection, id: key, key, kind },
            // One row may be a change of several collections; it is done with the last of them.
            token: position(nth === collections.length - 1 ? 1 : 0),
            at: new Date(at),
          });
    }
  }

  async #busy(count: number): Promise<void> {
    const now = this.#sources.sql.clock.monotonic();
    const brisk = count > FEW || now - this.#readAt < IDLE_MS;
    this.#readAt = now;
    this.#waits.reset();
    this.#waitMs = this.#waits.next();
    if (this.#armed && brisk) await this.#arm(false);
  }

  /**
   * Before a wait that writers are to end, returns for one more read: a writer that committed before the flag was set
   * did not notify.
   */
  async #idle(): Promise<void> {
    if (!this.#armed && this.#waitMs >= IDLE_MS) {
      await this.#listen();
      await this.#arm(true);
      return;
    }
    await this.#rest();
    this.#waitMs = this.#waits.next();
  }

  async #rest(): Promise<void> {
    const arrival = new AbortController();
    this.#wake = () => arrival.abort();
    if (!this.#woken && !this.#closed.signal.aborted)
      await pause(this.#sources.sql.clock, this.#waitMs, arrival.signal);
    this.#wake = undefined;
    this.#woken = false;
  }

  async #arm(armed: boolean): Promise<void> {
    const { driver } = this.#sources.sql;
    if (this.#partition.of === 1) await this.#setFlag(driver, armed);
    else
      await driver.transaction(async (transaction) => {
        // One reader at a time, each with a new look at the others: the flag is up while any of them is idle.
        await transaction.query(`select from ${namesOf(this.#sources.sql).planner} for update`);
        await this.#setFlag(transaction, armed);
      });
    this.#armed = armed;
    // Closed meanwhile: nobody else takes the flag down.
    if (armed && this.#closed.signal.aborted) await this.#arm(false);
  }

  async #setFlag(on: Queryable, armed: boolean): Promise<void> {
    const names = namesOf(this.#sources.sql);
    const { leaders, leader } = tablesOf(names, this.#partition);
    const { life, term } = this.#term;
    const leads = `${leader} and life = $3::text and term = $4::bigint`;
    // A former leader that resumes late must not clear its successor's flag. While the row is locked, no other instance
    // can take over.
    const alone = `with leads as materialized (select from ${leaders} where ${leads} for share)
      select setval($1::text::regclass, $2::bigint)::text as json from leads`;
    const { index } = this.#partition;
    const others = `(${index === 0 ? 'false' : `exists (select from ${names.planner} where idle)`} or exists (
      select from ${names.partitions} where idle and partition <> ${String(index)}))`;
    const among = `with own as (update ${leaders} set idle = $2::bigint = 1 where ${leads} returning 1)
      select setval($1::text::regclass, case when ${others} then 1 else $2::bigint end)::text as json from own`;
    await on.query(this.#partition.of === 1 ? alone : among, [names.idle, armed ? 1 : 0, life, term]);
  }

  async #listen(): Promise<void> {
    if (this.#listening !== undefined) return;
    const { driver } = this.#sources.sql;
    const channel = namesOf(this.#sources.sql).changesChannel;
    const broken = new AbortController();
    try {
      const listening = await driver.listen(channel, {
        message: () => {
          this.#woken = true;
          this.#wake?.();
        },
        broken: () => {
          broken.abort();
          this.#listening = undefined;
        },
      });
      if ('unavailable' in listening || broken.signal.aborted) return;
      this.#listening = listening;
      // If the feed was closed meanwhile, nothing else would close the connection.
      if (this.#closed.signal.aborted) await listening.close();
    } catch {
      // Polling is enough; the next idle spell tries again.
    }
  }

  /** Finds tables that were dropped, recreated or altered, and triggers that are gone. */
  async #inspect(): Promise<void> {
    const bySource = new Map<string, string[]>();
    for (const collection of this.#collections) {
      const shape = await this.#sources.look(collection);
      const standing = shape && (await this.#sources.standing(shape));
      const now =
        shape && [captureOf(shape), signatureOf(shape), shape.fingerprint, shape.hidesRows].join(' ');
      const seen = now === undefined ? 'gone' : `${now} ${String(standing)}`;
      if (shape !== undefined)
        bySource.set(captureOf(shape), [...(bySource.get(captureOf(shape)) ?? []), collection]);
      const before = this.#seen.get(collection);
      this.#seen.set(collection, seen);
      if ((before === undefined && standing === 'prepared') || before === seen) continue;
      // The planner was told of the change, and has prepared the table.
      if (standing === 'prepared' && before === `${String(now)} changed`) continue;
      // Dropped on request. The planner will soon know, and must not create the triggers again.
      if (standing === 'dropped') continue;
      // Report everything else, including a table that another instance has prepared. That instance has requested a
      // reconciliation as well.
      const token = this.#queue.at(-1)?.token ?? this.#returned;
      this.#queue.push({ kind: 'upheaval', collections: [collection], token });
    }
    this.#bySource = bySource;
    this.#inspectedAt = this.#sources.sql.clock.monotonic();
  }
}

export function openFeed(sources: SqlSources, request: FeedRequest, partition: Partition): Promise<Feed> {
  if (request.database !== undefined)
    throw new OptionError('A PostgreSQL store watches tables of its own database only.');
  return run('watch', () => new TableFeed(sources, request, partition).open());
}
