/** Reads the changes that triggers have recorded. */
import { StoreError } from '../../../core/errors.js';
import type { Partition } from '../../../store/reactive/partitions.js';
import type { Sql } from '../../connection/connection.js';
import { ms } from '../../jobs/record.js';
import { rows } from '../../connection/rows.js';
import type { SequenceGaps } from './sequence-gaps.js';
import { inPartition, WHOLE } from '../partition.js';
import { namesOf } from '../place.js';

export interface Noted {
  readonly seq: number;
  readonly source: string;
  readonly key: string;
  readonly kind: 'insert' | 'update' | 'delete' | 'truncate';
  readonly at: number;
}

interface Answer {
  /** Every transaction below this id has ended, and its commit is visible. */
  readonly xmin: number;
  /**
   * The id that the next transaction gets. The end of the snapshot would not do: open transactions may lie beyond it.
   */
  readonly next: number;
  /** The newest number that was handed out. */
  readonly last: number;
  readonly rows: readonly Noted[];
  /** The numbers of changes that belong to other partitions. */
  readonly others: readonly number[];
}

/** A condition: a change belongs to the partition. What concerns a whole table belongs to partition 0. */
const isOwn = (partition: Partition): string =>
  partition.of === 1
    ? 'true'
    : `(case when c.kind = 'truncate' then ${partition.index === 0 ? 'true' : 'false'} else ${inPartition(partition, 'c.key')} end)`;

/**
 * The age of a transaction id counts from the next one, which tells the next id without using one up.
 *
 * $1 spans to read, in order · $2 limit
 */
export const readStatement = (sql: Sql, partition: Partition = WHOLE): string => {
  const { changes, changeNumbers } = namesOf(sql);
  const own = isOwn(partition);
  const others =
    partition.of === 1 ? `'[]'::json` : `coalesce(json_agg(c.seq) filter (where not ${own}), '[]')`;
  return `select json_build_object(
      'xmin', pg_snapshot_xmin(s.now)::text::bigint,
      'next', pg_snapshot_xmax(s.now)::text::bigint + age(pg_snapshot_xmax(s.now)::xid),
      'last', (select case when is_called then last_value else 0 end from ${changeNumbers}),
      'read', (
        select json_build_object('others', ${others}, 'rows', coalesce(json_agg(json_build_object('seq', c.seq,
          'source', c.source, 'key', c.key, 'kind', c.kind, 'at', ${ms('c.at')}) order by c.seq) filter (where ${own}), '[]'))
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
 * A transaction takes a lock on the table before it gets a number, and holds it until its end. So an open transaction
 * without the lock has no number, however old it is. One with the lock but no transaction id yet is about to write.
 *
 * $1 a transaction id · $2 the table of changes
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

/**
 * After waiting this long for older transactions, asks only for those that write changes: any other open transaction is
 * no reason to wait.
 */
const PATIENCE_MS = 1_000;

/**
 * Reads changes in pages, and finds out up to which number no more can arrive. A number that was handed out belongs to
 * a transaction that had begun by then. Once all of those have ended, the change was read or will never come.
 */
export class ChangeReader {
  readonly #sql: Sql;
  readonly #gaps: SequenceGaps;
  readonly #limit: number;
  readonly #partition: Partition;
  #isFull = false;
  #highest = 0;
  /**
   * The newest number of an earlier read, and a transaction id above that of any transaction that has such a number.
   */
  #mark: { readonly last: number; readonly next?: number } | undefined;
  /** When the mark was completed, or the writers were last asked for. */
  #waitsSince = 0;

  constructor(sql: Sql, gaps: SequenceGaps, limit: number, partition: Partition = WHOLE) {
    this.#partition = partition;
    this.#sql = sql;
    this.#gaps = gaps;
    this.#limit = limit;
  }

  /** True if the last read may have left changes behind. */
  get isFull(): boolean {
    return this.#isFull;
  }

  async read(): Promise<readonly Noted[]> {
    // Asked before reading, so that the read sees what the ended writers committed.
    const areOver = await this.#areWritersOver();
    const gaps = JSON.stringify(this.#gaps.gaps());
    const statement = readStatement(this.#sql, this.#partition);
    type Row = Omit<Answer, 'rows' | 'others'> & { readonly read: Pick<Answer, 'rows' | 'others'> };
    const [row] = await rows<Row>(this.#sql.driver, statement, [gaps, this.#limit]);
    if (row === undefined) return [];
    const answer = { ...row, ...row.read };
    this.#refuseGoingBack(answer);
    for (const { seq } of answer.rows) this.#gaps.add(seq);
    for (const seq of answer.others) this.#gaps.skip(seq);
    this.#decide(answer, areOver);
    this.#isFull = answer.rows.length + answer.others.length >= this.#limit;
    return answer.rows;
  }

  /** A server that was promoted may have missed the newest numbers, and hands them out again. */
  #refuseGoingBack({ last }: Answer): void {
    if (last < this.#highest)
      throw new StoreError('the sequence of change numbers went back; all changes are read again.', {
        transient: true,
      });
    this.#highest = last;
  }

  /**
   * The transaction with the newest number had begun before the next read, so a mark is complete only with that read.
   */
  #decide({ xmin, next, last, rows: read, others }: Answer, areOver: boolean): void {
    const mark = this.#mark;
    if (mark === undefined) this.#mark = { last };
    else if (mark.next === undefined) {
      this.#mark = { ...mark, next };
      this.#waitsSince = this.#sql.clock.monotonic();
    } else if (areOver || xmin >= mark.next) {
      const newest = Math.max(read.at(-1)?.seq ?? 1, ...others);
      const seen = read.length + others.length < this.#limit ? mark.last : Math.min(mark.last, newest - 1);
      this.#gaps.decided(seen);
      this.#mark = { last };
    }
  }

  /** True if every transaction that could have a number up to the mark has ended, whatever else is open. */
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
