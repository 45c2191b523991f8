import { pause } from '../../../core/clock.js';
import { OptionError, StoreError } from '../../../core/errors.js';
import type { Feed, FeedEvent, FeedRequest, Term } from '../../../store/reactive.js';
import type { Listening } from '../../connection/driver.js';
import { run } from '../../connection/errors.js';
import { ChangeReader, type Noted } from './changes.js';
import { SequenceGaps, Position } from './sequence-gaps.js';
import { namesOf } from '../place.js';
import { captureOf, signatureOf } from '../../tables/shape.js';
import type { SqlSources } from '../sources.js';

const PAGE = 1_000;
/** Looks follow each other at first, and slow down while nothing comes. */
const SHORTEST_MS = 5;
const LONGEST_MS = 1_000;
/** After so long a silence writers are asked to wake. */
const IDLE_MS = 40;
/** More at once than this, or pages that follow each other sooner than `IDLE_MS`: writers need not wake any more. */
const FEW = 10;
/** Tables may be altered, dropped and made anew. */
const INSPECT_MS = 5_000;

/**
 * What triggers have noted, and what becomes of the tables themselves. Writers wake it only while it has asked for that,
 * since notifications make their commits take turns; the poll finds everything.
 */
class TableFeed implements Feed {
  readonly #sources: SqlSources;
  readonly #collections: readonly string[];
  readonly #term: Term;
  readonly #gaps = new SequenceGaps();
  readonly #reader: ChangeReader;
  readonly #closed = new AbortController();
  #queue: (FeedEvent & { readonly token: Position })[] = [];
  #bySource: ReadonlyMap<string, readonly string[]> = new Map();
  /** Sources of triggers that a task has left behind. One that becomes ours is found by an inspection, which asks for a look at all. */
  readonly #strangers = new Set<string>();
  /** What was last seen of each table, so that a fault is told once. */
  readonly #seen = new Map<string, string>();
  #listening: Listening | undefined;
  #wake: (() => void) | undefined;
  #woken = false;
  #armed = false;
  #waitMs = SHORTEST_MS;
  #readAt = -Infinity;
  #inspectedAt = -Infinity;
  /** Before which every change has arrived at whoever asks for the next one. */
  #arrived: Position;
  /** That of the event that was returned last. */
  #returned: Position;

  constructor(sources: SqlSources, { collections, term }: FeedRequest) {
    this.#sources = sources;
    this.#collections = collections;
    this.#term = term;
    this.#reader = new ChangeReader(sources.sql, this.#gaps, PAGE);
    this.#arrived = this.#returned = new Position(this.#gaps, 0);
  }

  get token(): Position {
    return this.#arrived;
  }

  async open(): Promise<this> {
    // A leader that died may have left it up.
    await this.#arm(false);
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

  /** Nothing is left to be returned: what was read so far is no table's that is followed, or has arrived. */
  #allArrived(): void {
    const { end } = this.#gaps;
    if (end > this.#arrived.place) this.#arrived = this.#returned = new Position(this.#gaps, end);
  }

  async #look(): Promise<void> {
    const { clock } = this.#sources.sql;
    if (this.#closed.signal.aborted) throw new StoreError('watch: the feed was closed.', { transient: true });
    if (clock.monotonic() - this.#inspectedAt >= INSPECT_MS) await this.#inspect();
    const noted = await this.#reader.read();
    if (noted.length > 0) {
      await this.#deliver(noted);
      await this.#busy(noted.length);
    } else if (this.#queue.length === 0) await this.#idle();
  }

  /** A source that is not known may be that of triggers that were made a moment ago. */
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
            // One row may be a change of several: it is over with the last of them.
            token: position(nth === collections.length - 1 ? 1 : 0),
            at: new Date(at),
          });
    }
  }

  async #busy(count: number): Promise<void> {
    const now = this.#sources.sql.clock.monotonic();
    const brisk = count > FEW || now - this.#readAt < IDLE_MS;
    this.#readAt = now;
    this.#waitMs = SHORTEST_MS;
    if (this.#armed && brisk) await this.#arm(false);
  }

  /** Before the wait that others are to end, one more look: whoever wrote before the flag was up did not wake. */
  async #idle(): Promise<void> {
    if (!this.#armed && this.#waitMs >= IDLE_MS) {
      await this.#listen();
      await this.#arm(true);
      return;
    }
    await this.#rest();
    this.#waitMs = Math.min(this.#waitMs * 2, LONGEST_MS);
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
    const { idle, planner } = namesOf(this.#sources.sql);
    const { life, term } = this.#term;
    // A leader that wakes late must not lower its successor's flag; nobody takes over while the row is locked.
    await driver.query(
      `with leads as materialized (
         select from ${planner} where life = $3::text and term = $4::bigint for share
       ) select setval($1::text::regclass, $2::bigint)::text as json from leads`,
      [idle, armed ? 1 : 0, life, term],
    );
    this.#armed = armed;
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
      // Closed meanwhile: nobody else would end it.
      if (this.#closed.signal.aborted) await listening.close();
    } catch {
      // The poll is enough, and the next idle spell tries again.
    }
  }

  /** Notices tables that were dropped, made anew or altered, and triggers that are gone. */
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
      // The planner was told, and has made it ready.
      if (standing === 'prepared' && before === `${String(now)} changed`) continue;
      // On request: the planner will soon know, and must not make them again.
      if (standing === 'dropped') continue;
      // Made ready by somebody else, who has asked for a look at everything as well.
      const token = this.#queue.at(-1)?.token ?? this.#returned;
      this.#queue.push({ kind: 'upheaval', collections: [collection], token });
    }
    this.#bySource = bySource;
    this.#inspectedAt = this.#sources.sql.clock.monotonic();
  }
}

export function openFeed(sources: SqlSources, request: FeedRequest): Promise<Feed> {
  if (request.database !== undefined)
    throw new OptionError('A PostgreSQL store watches tables of its own database only.');
  return run('watch', () => new TableFeed(sources, request).open());
}
