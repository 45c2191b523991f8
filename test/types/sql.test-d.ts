/** Types of the tag `sql`, checked by the compiler alone; nothing here runs. */
import { expectTypeOf } from 'vitest';
import { Tidemill } from 'tidemill';
import { embedded, sql as embeddedSql } from 'tidemill/embedded';
import { sql, type Queryable, type SqlTransaction, type SqlFragment, type SqlValue } from 'tidemill/postgres';
import type { PoolClient } from 'pg';

const mill = new Tidemill({ store: embedded() });
const handler = (): void => undefined;

expectTypeOf(sql`total > ${100} and name = ${'a'} and at < ${new Date()}`).toEqualTypeOf<SqlFragment>();
expectTypeOf(sql`${sql`a`} and ${5n} and ${null} and ${true}`).toEqualTypeOf<SqlFragment>();
expectTypeOf(embeddedSql`true`).toEqualTypeOf<SqlFragment>();
expectTypeOf<{ text: string; values: readonly unknown[] }>().not.toExtend<SqlFragment>();
expectTypeOf<undefined>().not.toExtend<SqlValue>();
expectTypeOf<string[]>().not.toExtend<SqlValue>();
// @ts-expect-error: it is a tag, and takes no text.
sql('total > 100');

// The handle of a transaction takes what its driver takes; an adapter may take less.
void mill.withTransaction(async (transaction) => {
  await transaction.query('select $1, $2, $3', [new Date(), true, ['a', 'b']]);
  await mill.enqueue('a', {}, { transaction });
});
void mill.reactiveTask({
  task: 'by-id',
  collection: 'orders',
  handler: ({ docId, markCompleted }) =>
    mill.withTransaction(async (transaction) => {
      await transaction.query('update orders set done = $1 where id = $2', [true, docId]);
      await markCompleted({ transaction });
    }),
});
// Errors and hovers of the compiler show the name under which it is exported.
expectTypeOf<Queryable>().toEqualTypeOf<SqlTransaction>();
const adapter: SqlTransaction = {
  query: (_text: string, _values?: (string | number | null)[]) => Promise.resolve({ rows: [] }),
};
void mill.enqueue('a', {}, { transaction: adapter });
declare const client: PoolClient;
void mill.enqueue('a', {}, { transaction: client });

void mill.reactiveTask({ task: 't', collection: 'orders', filter: sql`total > ${100}`, handler });
void mill.tasks.find({ sourceDocFilter: sql`total > ${100}` });
mill.documents({ collection: 'orders', condition: sql`total > ${100}`, onDocument: handler });
