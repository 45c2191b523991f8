/** Types of the tag `sql`, checked by the compiler alone; nothing here runs. */
import { expectTypeOf } from 'vitest';
import { Tidemill } from 'tidemill';
import { embedded, sql as embeddedSql } from 'tidemill/embedded';
import { sql, type SqlFragment, type SqlValue } from 'tidemill/postgres';

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

void mill.reactiveTask({ task: 't', collection: 'orders', filter: sql`total > ${100}`, handler });
void mill.tasks.find({ sourceDocFilter: sql`total > ${100}` });
mill.documents({ collection: 'orders', condition: sql`total > ${100}`, onDocument: handler });
