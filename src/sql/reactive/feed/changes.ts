/** Reads what triggers have noted. */
import { StoreError } from '../../../core/errors.js';
import type { Sql } from '../../connection/connection.js';
import { ms } from '../../jobs/record.js';
import { rows } from '../../connection/rows.js';
import type { SequenceGaps } from './sequence-gaps.js';
import { namesOf } from '../place.js';

export interface Noted {
  readonly seq: number;
  readonly source: string;
  readonly key: string;
  readonly kind: 'insert' | 'update' | 'delete' | 'truncate';
  readonly at: number;
}

interface Answer {
  /** Every transaction below has ended, and what it committed is seen. */
  readonly xmin: number;
  /** The next transaction to write begins here. Unlike the snapshot's own end, which open transactions may lie beyond. */
  readonly next: number;
  /** The newest number that was given out. */
  readonly last: number;
  readonly rows: readonly Noted[];
}

/**
 * $1 spans to look into, in order · $2 the most to read
 * The age of a transaction counts from the next one: so the id of that is known without using one up.
 */
export const readStatement = (sql: Sql): string => {
  const { changes, changeNumbers } = namesOf(sql);
  return `select json_build_object(
      'xmin', pg_snapshot_xmin(s.now)::text::bigint,
      'next', pg_snapshot_xmax(s.now)::text::bigint + age(pg_snapshot_xmax(s.now)::xid),
      'last', (select case when is_called then last_value else 0 end from ${changeNumbers}),
      'rows', (
        select coalesce(json_agg(json_build_object('seq', c.seq, 'source', c.source, 'key', c.key, 'kind', c.kind,
          'at', ${ms('c.at')}) order by c.seq), '[]')
        from (
          select c.* from json_to_recordset($1::text::json) as gap(lo bigint, hi bigint)
          cross join lateral (
            select * from ${changes} where seq between gap.lo and gap.hi order by seq limit $2::integer
          ) c
          order by c.seq limit $2::integer
        ) c)
    )::text as json
    from (select pg_current_snapshot() as now) s`;
};

/**
 * $1 a transaction · $2 the table of changes
 * Whoever has a number holds a lock on the table until its end, and took it first. So an open transaction that holds none
 * has no number, however old it is. One without an id is about to get it.
 */
const writersStatement = `
  select to_json(not exists (
    select from pg_catalog.pg_locks l
    where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.relation = $2::text::regclass
      and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
      and coalesce((
        select s.next - max(age(t.transactionid)) from pg_catalog.pg_locks t
        where t.virtualtransaction = l.virtualtransaction and t.locktype = 'transactionid' and t.mode = 'ExclusiveLock'
      ), 0) < $1::bigint
  ))::text as json
  from (select pg_snapshot_xmax(now)::text::bigint + age(pg_snapshot_xmax(now)::xid) as next
    from (select pg_current_snapshot() as now) n) s`;

/** A transaction elsewhere that is open for longer than this is no reason to wait: who writes changes is asked for. */
const PATIENCE_MS = 1_000;

/**
 * Reads pages, and finds out up to which number nothing can come any more: one that was given out belongs to a
 * transaction that had begun by then, and when all of those have ended, it was read or never will be.
 */
export class ChangeReader {
  readonly #sql: Sql;
  readonly #gaps: SequenceGaps;
  readonly #limit: number;
  #highest = 0;
  /** The newest number of an earlier look, and a transaction that begins later than whoever has it. */
  #mark: { readonly last: number; readonly next?: number } | undefined;
  /** Since when the mark waits, or was last asked about. */
  #waitsSince = 0;

  constructor(sql: Sql, gaps: SequenceGaps, limit: number) {
    this.#sql = sql;
    this.#gaps = gaps;
    this.#limit = limit;
  }

  async read(): Promise<readonly Noted[]> {
    // Before the look: what those who have ended committed is seen by it.
    const areOver = await this.#areWritersOver();
    const gaps = JSON.stringify(this.#gaps.gaps());
    const [answer] = await rows<Answer>(this.#sql.driver, readStatement(this.#sql), [gaps, this.#limit]);
    if (answer === undefined) return [];
    this.#refuseGoingBack(answer);
    for (const { seq } of answer.rows) this.#gaps.add(seq);
    this.#decide(answer, areOver);
    return answer.rows;
  }

  /** A server that has taken over may not have seen the newest numbers, and gives them out again. */
  #refuseGoingBack({ last }: Answer): void {
    if (last < this.#highest)
      throw new StoreError('the numbers of changes went back: all of them are read anew.', {
        transient: true,
      });
    this.#highest = last;
  }

  /** Whoever has the newest number began before the look after that: a mark is complete only with the next one. */
  #decide({ xmin, next, last, rows: read }: Answer, areOver: boolean): void {
    const mark = this.#mark;
    if (mark === undefined) this.#mark = { last };
    else if (mark.next === undefined) {
      this.#mark = { ...mark, next };
      this.#waitsSince = this.#sql.clock.monotonic();
    } else if (areOver || xmin >= mark.next) {
      const seen = read.length < this.#limit ? mark.last : Math.min(mark.last, (read.at(-1)?.seq ?? 1) - 1);
      this.#gaps.decided(seen);
      this.#mark = { last };
    }
  }

  /** True where every transaction that could have a number up to the mark has ended, whatever else is open. */
  async #areWritersOver(): Promise<boolean> {
    const { driver, clock } = this.#sql;
    const next = this.#mark?.next;
    if (next === undefined || clock.monotonic() - this.#waitsSince < PATIENCE_MS) return false;
    this.#waitsSince = clock.monotonic();
    const [areOver = false] = await rows<boolean>(driver, writersStatement, [
      next,
      namesOf(this.#sql).changes,
    ]);
    return areOver;
  }
}
