import { pause } from '../../core/clock.js';
import { OptionError, StoreError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import type { Source } from '../../store/reactive/reactive.js';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { isLocked, sqlState } from '../connection/errors.js';
import { rows } from '../connection/rows.js';
import {
  captureStatements,
  dropUnusedFunctions,
  isCaptured,
  isFunctionOutdated,
  renewFunction,
} from './feed/capture.js';
import { namesOf } from './place.js';
import {
  captureOf,
  checkShape,
  isUnseen,
  missingTable,
  readShape,
  signatureOf,
  type Shape,
} from '../tables/shape.js';
import { parseName } from '../tables/table-name.js';
import { Suspects } from './plan/suspects.js';

/**
 * Creating or dropping a trigger waits for open transactions on its table, and later statements on the table wait
 * behind it.
 */
const LOCK_MS = 2_000;
const TRIES = 5;
const REST_MS = 500;
export const NO_RIGHT = '42501';

const occupied = (where: string, cause: unknown): StoreError =>
  new StoreError(
    `${where}: the triggers could not be changed: an open transaction has used the table for ` +
      `${String((TRIES * LOCK_MS) / 1_000)} s. End that transaction, or try again later.`,
    { cause },
  );

/** The watched tables, and what is known about them. */
export class SqlSources {
  readonly #sql: () => Sql;
  readonly #create: boolean;
  /** By the names that tasks use. */
  readonly #shapes = new Map<string, Shape>();
  /** A table name is resolved on the search path once: it must not mean another table later. */
  readonly #resolved = new Map<string, string>();

  readonly suspects: Suspects = new Suspects({ monotonic: () => this.sql.clock.monotonic() });

  constructor(sql: () => Sql, create: boolean) {
    this.#sql = sql;
    this.#create = create;
  }

  get sql(): Sql {
    return this.#sql();
  }

  /** Returns undefined if the table does not exist at the moment. */
  async open({ collection }: Source): Promise<Shape | undefined> {
    const known = this.#shapes.get(collection);
    return known ?? this.look(collection);
  }

  /** Like `open`, but reads the catalog again. */
  async look(collection: string, on: Queryable = this.sql.driver): Promise<Shape | undefined> {
    const name = parseName('reactiveTask', this.#resolved.get(collection) ?? collection);
    const shape = await readShape(on, this.sql.names.schema, name);
    if (shape === undefined) this.#shapes.delete(collection);
    else {
      this.#shapes.set(collection, shape);
      this.#resolved.set(collection, shape.name);
    }
    return shape;
  }

  /** The full name, which does not depend on the search path of other instances. */
  async nameOf({ collection }: Source): Promise<string> {
    if (!this.#resolved.has(collection)) await this.look(collection);
    return this.#resolved.get(collection) ?? collection;
  }

  forget({ collection }: Source): void {
    this.#shapes.delete(collection);
  }

  /** Rejects a table that cannot be watched. Creates the triggers of any other, if they are missing or outdated. */
  async prepare(where: string, { collection }: Source): Promise<Shape> {
    const shape = await this.look(collection);
    if (shape === undefined) throw await missingTable(where, this.sql.driver, parseName(where, collection));
    checkShape(where, shape);
    if ((await this.standing(shape)) !== 'prepared') await this.#capture(where, collection);
    else {
      await this.#adopt(shape);
      await this.#renew(where, shape);
    }
    return (await this.open({ collection })) ?? shape;
  }

  /**
   * `changed`: the table must be reconciled, since its triggers or columns are not what they were. `dropped`: triggers
   * were never requested, or were dropped on request.
   */
  async standing(shape: Shape, on: Queryable = this.sql.driver): Promise<'prepared' | 'changed' | 'dropped'> {
    const { sources } = namesOf(this.sql);
    const [kept] = await rows<{ signature: string; fingerprint: string | null }>(
      on,
      `select json_build_object('signature', signature, 'fingerprint', fingerprint)::text as json
       from ${sources} where name = $1::text`,
      [shape.name],
    );
    if (kept === undefined) return 'dropped';
    const isSame = kept.signature === signatureOf(shape) && !isUnseen(kept.fingerprint, shape);
    return isSame && isCaptured(this.sql.names, shape) ? 'prepared' : 'changed';
  }

  /** The statements to run by hand if the store must not create triggers. */
  script(shape: Shape): string {
    return captureStatements(this.sql.names, shape)
      .map((statement) => `${statement.trim()};`)
      .join('\n');
  }

  /**
   * Runs `work` in one transaction, while no other instance creates or drops triggers. It waits only briefly for a
   * table that is in use, since later statements on it wait as well; then it tries again.
   */
  async alone<T>(where: string, work: (transaction: Queryable) => Promise<T>): Promise<T> {
    const { driver, names, clock } = this.sql;
    for (let tries = 1; ; tries += 1) {
      try {
        return await driver.transaction(async (transaction) => {
          await transaction.query(
            `select set_config('lock_timeout', $1::text, true), pg_advisory_xact_lock(hashtextextended($2::text, 0))`,
            [String(LOCK_MS), `tidemill:${names.schema}:capture`],
          );
          return work(transaction);
        });
      } catch (error) {
        if (!isLocked(error)) throw error;
        if (tries === TRIES) throw occupied(where, error);
        await pause(clock, REST_MS * tries, new AbortController().signal);
      }
    }
  }

  /**
   * After a crash there are either no triggers, or triggers together with a request for reconciliation. The transaction
   * locks the table against writes: what commits later is recorded, and what committed before is reconciled.
   */
  async #capture(where: string, collection: string): Promise<void> {
    await this.alone(where, async (transaction) => {
      const shape = await this.look(collection, transaction);
      if (shape === undefined || (await this.standing(shape, transaction)) === 'prepared') return;
      const isMade = isCaptured(this.sql.names, shape);
      if (!isMade) await this.#makeTriggers(where, shape, transaction);
      // The new triggers are part of the fingerprint.
      await this.#remember(
        isMade ? shape : ((await this.look(collection, transaction)) ?? shape),
        transaction,
      );
    });
    await this.look(collection);
  }

  async #makeTriggers(where: string, shape: Shape, transaction: Queryable): Promise<void> {
    if (!this.#create) throw this.#byHand(where, shape);
    try {
      for (const statement of captureStatements(this.sql.names, shape)) await transaction.query(statement);
      // Functions for an earlier form of the table.
      await dropUnusedFunctions(transaction, this.sql.names, shape);
    } catch (error) {
      if (sqlState(error) === NO_RIGHT) throw this.#byHand(where, shape, error);
      throw error;
    }
  }

  #byHand(where: string, shape: Shape, cause?: unknown): OptionError {
    const why = cause === undefined ? 'createTriggers is off' : 'this role may not create triggers on it';
    return new OptionError(
      `${where}: ${show(shape.name)} has no triggers yet, and ${why}. Run this as its owner, then start again:\n` +
        this.script(shape),
      { cause },
    );
  }

  /** For a table that an older version prepared: changes to it are noticed from now on. */
  async #adopt({ name, fingerprint }: Shape): Promise<void> {
    const { driver } = this.sql;
    const { sources } = namesOf(this.sql);
    await driver.query(
      `update ${sources} set fingerprint = $2::text where name = $1::text and fingerprint is null`,
      [name, fingerprint],
    );
  }

  /** Functions of an older version record changes without a limit. */
  async #renew(where: string, shape: Shape): Promise<void> {
    const { driver, names } = this.sql;
    if (!this.#create || !(await isFunctionOutdated(driver, names, shape))) return;
    await this.alone(where, async (transaction) => {
      if (await isFunctionOutdated(transaction, names, shape)) await renewFunction(transaction, names, shape);
    });
  }

  async #remember(shape: Shape, on: Queryable): Promise<void> {
    const { sources, states, partitionStates, definitions } = namesOf(this.sql);
    await on.query(
      `insert into ${sources} (name, capture, signature, fingerprint) values ($1::text, $2::text, $3::text, $4::text)
       on conflict (name) do update set capture = excluded.capture, signature = excluded.signature,
         fingerprint = excluded.fingerprint`,
      [shape.name, captureOf(shape), signatureOf(shape), shape.fingerprint],
    );
    for (const table of [states, partitionStates])
      await on.query(
        `update ${table} set wanted = wanted + 1, state = state || jsonb_build_object('reason', 'table changed')
         where task in (select task from ${definitions} where source = $1::text)`,
        [shape.name],
      );
  }
}
