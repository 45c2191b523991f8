import { Backoff } from '../../../core/backoff.js';
import { pause } from '../../../core/clock.js';
import { lazily } from '../../../core/lazily.js';
import { StoreError } from '../../../core/errors.js';
import type { JobRecord } from '../../../core/records/job.js';
import type { Inserted, NewJob } from '../../../store/port.js';
import { LOCK_MS } from '../../connection/around-locks.js';
import { wakeMessage } from '../../cluster/notifier.js';
import type { Sql } from '../../connection/connection.js';
import type { Queryable } from '../../connection/driver.js';
import { isLocked, isRolledBack, classifyError } from '../../connection/errors.js';
import { refuseWithoutTransaction } from '../../connection/require-transaction.js';
import { checked, wakingOf, winnersStatement, write, type Identified, type Writing } from './new-jobs.js';
import { recordOfNew, toRecord, type Row } from '../record.js';
import { mayBeMarked } from '../../connection/values.js';

/** Few calls use `onExisting`. */
const loadPut = lazily(() => import('./put.js'));

/** A key that is taken and free again this many times in a row is a fault, not a race. */
const TRIES = 50;
/** Lock limit for a job that is inserted by itself: the batch has already waited for it. */
const AT_ONCE_MS = 2;
/** Another enqueue holds a key for a moment only. A longer wait means that a transaction is kept open. */
const BRIEFLY_MS = 50;
const RETRY_MS = { min: BRIEFLY_MS, max: 1_000 };
/** How long a call waits for a key altogether. */
const PATIENCE_MS = 30_000;

/** One call: its jobs, and the result of each so far. */
class Insertion {
  readonly answers: (Inserted | undefined)[];
  readonly #sql: Sql;
  readonly #asked: readonly Identified[];
  /** True once something may be stored: an error no longer means that nothing was. */
  #wrote = false;

  constructor(sql: Sql, jobs: readonly NewJob[]) {
    this.#sql = sql;
    this.#asked = jobs.map(checked);
    this.answers = new Array<Inserted | undefined>(jobs.length).fill(undefined);
  }

  /** The jobs for which instances are woken. */
  get waking(): readonly Identified[] {
    return wakingOf(this.#asked);
  }

  /** Positions without a result yet. */
  get open(): readonly number[] {
    return this.#asked.map((_job, at) => at).filter((at) => this.answers[at] === undefined);
  }

  /** True for a job that can collide with no other: the caller gave it neither a unique key nor an id. */
  isPlain(at: number): boolean {
    const { uniqueKey, ownId } = this.#job(at);
    return uniqueKey === undefined && ownId !== true;
  }

  async insert(positions: readonly number[], writing: Writing): Promise<void> {
    const putting = positions.filter((at) => this.#job(at).onExisting !== undefined);
    let open: readonly number[] = positions.filter((at) => this.#job(at).onExisting === undefined);
    for (let tries = 0; open.length > 0 && tries < TRIES; tries += 1) {
      await this.#write(open, writing);
      open = await this.#readWinners(writing.on, this.#unanswered(open));
    }
    if (putting.length > 0) await this.#put(putting, writing);
    if (open.length === 0) return;
    throw new StoreError('enqueue: a unique key was taken and freed again many times in a row; try again.', {
      transient: true,
      outcomeUnknown: this.#wrote,
    });
  }

  /** Waits for keys that open transactions hold, without occupying a connection meanwhile. */
  async insertPatiently(writing: Writing): Promise<void> {
    const { clock } = this.#sql;
    const until = clock.monotonic() + PATIENCE_MS;
    for (const retry = new Backoff(RETRY_MS); ;) {
      try {
        await this.insert(this.open, writing);
        return;
      } catch (error) {
        if (!isLocked(error)) throw error;
        if (clock.monotonic() > until) throw heldUp(error, this.#wrote);
      }
      await pause(clock, retry.next());
    }
  }

  /**
   * Classifies an error of the driver. If a part is stored already, an error that says that nothing was sent concerns a
   * later statement.
   */
  sorted(error: unknown): Error {
    const known = classifyError('enqueue', error, this.#wrote || !isRolledBack(error));
    const isPart = this.#wrote && known instanceof StoreError && !known.outcomeUnknown;
    return isPart ? partlyStored(known) : known;
  }

  #job(at: number): Identified {
    return this.#asked[at] as Identified;
  }

  #unanswered(positions: readonly number[]): readonly number[] {
    return positions.filter((at) => this.answers[at] === undefined);
  }

  async #write(positions: readonly number[], writing: Writing): Promise<void> {
    const jobs = positions.map((at) => this.#job(at));
    await write(this.#sql, jobs, writing, (ids) => {
      const stored = new Set(ids);
      this.#wrote ||= stored.size > 0;
      // Duplicates within one call have different ids, unless the caller gave them the same one.
      for (const at of this.#unanswered(positions)) {
        const job = this.#job(at);
        if (stored.delete(job.id)) this.answers[at] = { job: recordOfNew(job), outcome: 'created' };
      }
    });
  }

  async #put(positions: readonly number[], writing: Writing): Promise<void> {
    const jobs = positions.map((at) => this.#job(at));
    const { put } = await loadPut();
    for (const [index, { outcome, job }] of await put(this.#sql, jobs, writing)) {
      const at = positions[index] as number;
      this.answers[at] = { job, outcome: outcome === 'existing' ? outcomeOf(this.#job(at), job) : outcome };
      this.#wrote = true;
    }
  }

  /** Fills in the results of refused jobs. Returns those whose winner is already gone: they are tried again. */
  async #readWinners(on: Queryable, refused: readonly number[]): Promise<readonly number[]> {
    if (refused.length === 0) return [];
    const given = refused.map((at) => {
      const { id, name, uniqueKey } = this.#job(at);
      return { at, id, name, unique_key: uniqueKey };
    });
    const answer = await on.query(winnersStatement(this.#sql), [JSON.stringify(given)]);
    for (const { json } of answer.rows) {
      const { at, job } = JSON.parse(json as string) as { at: number; job: Row };
      const winner = toRecord(job, mayBeMarked(json as string));
      this.answers[at] = { job: winner, outcome: outcomeOf(this.#job(at), winner) };
    }
    return this.#unanswered(refused);
  }
}

const partlyStored = (cause: StoreError): StoreError =>
  new StoreError(
    `enqueue: part of this call may have been stored before this error; it is safe to repeat the call with the same \`id\`. ${cause.message}`,
    { cause, transient: cause.transient, outcomeUnknown: true },
  );

const heldUp = (cause: unknown, outcomeUnknown: boolean): StoreError =>
  new StoreError(
    `enqueue: an open transaction has held a unique key, or an id, of this call for ${String(PATIENCE_MS / 1_000)} s. ` +
      'Nothing was stored for it; end that transaction, or try again.',
    { cause, transient: true, outcomeUnknown },
  );

/** If the store made the id itself, only an earlier try of the same call can have stored it. */
const outcomeOf = (job: Identified, winner: JobRecord): Inserted['outcome'] =>
  job.ownId !== true && winner.id === job.id ? 'created' : 'existing';

const alone = (sql: Sql, lockMs: number): Writing => ({ on: sql.driver.prepared, notifies: true, lockMs });

export async function insert(sql: Sql, jobs: readonly NewJob[]): Promise<readonly Inserted[]> {
  const insertion = new Insertion(sql, jobs);
  try {
    await insertion.insertPatiently(alone(sql, LOCK_MS));
  } catch (error) {
    throw insertion.sorted(error);
  }
  return insertion.answers as readonly Inserted[];
}

/**
 * Inserts what can be stored now, and leaves out jobs whose key an open transaction holds. Tries all of them together
 * first. If that meets a lock, jobs without a key of the caller's go together, and the others one by one.
 */
export async function insertFree(
  sql: Sql,
  jobs: readonly NewJob[],
): Promise<readonly (Inserted | undefined)[]> {
  const insertion = new Insertion(sql, jobs);
  try {
    const blocked = await leftOut(insertion, insertion.open, alone(sql, BRIEFLY_MS));
    if (blocked.length > 0) await apart(sql, insertion);
  } catch (error) {
    throw insertion.sorted(error);
  }
  return insertion.answers;
}

async function apart(sql: Sql, insertion: Insertion): Promise<void> {
  const { open } = insertion;
  await insertion.insert(
    open.filter((at) => insertion.isPlain(at)),
    alone(sql, LOCK_MS),
  );
  for (const at of insertion.open) await leftOut(insertion, [at], alone(sql, AT_ONCE_MS));
  // The job that was to wake the others may be among those that wait.
  sql.notifier.notify(wakeMessage());
}

/** Inserts these jobs; returns all their positions if one of them waits for a lock. */
async function leftOut(
  insertion: Insertion,
  positions: readonly number[],
  writing: Writing,
): Promise<readonly number[]> {
  try {
    await insertion.insert(positions, writing);
    return [];
  } catch (error) {
    if (!isLocked(error)) throw error;
    return positions;
  }
}

/**
 * Inserts in the caller's transaction. Errors are passed on as the driver threw them, so that the caller can tell what
 * to do.
 */
export async function insertIn(
  sql: Sql,
  jobs: readonly NewJob[],
  transaction: Queryable,
): Promise<readonly Inserted[]> {
  await refuseWithoutTransaction(sql, transaction);
  const insertion = new Insertion(sql, jobs);
  const isOwn = sql.ownTransactions.has(transaction);
  const notifies = !isOwn && sql.notifier.notifiesAtCommit;
  if (insertion.waking.length > 0) {
    if (isOwn) sql.notifier.afterCommit(transaction, insertion.waking);
    else if (!notifies) sql.notifier.repeatedly();
  }
  await insertion.insert(insertion.open, { on: sql.driver.limited(transaction), notifies });
  return insertion.answers as readonly Inserted[];
}
