/** A mill on one store goes wherever a mill on any store goes, checked by the compiler alone; nothing here runs. */
import { expectTypeOf } from 'vitest';
import { Tidemill, type Store, type TransactionOf } from 'tidemill';
import { createDashboard } from 'tidemill/dashboard';
import { embedded } from 'tidemill/embedded';
import { memory, type MemoryStore, type MemoryTransaction } from 'tidemill/memory';
import { mongodb } from 'tidemill/mongodb';
import { postgres } from 'tidemill/postgres';
import { drain, expectEnqueued, runDue, testMill, type TestMill } from 'tidemill/testing';

declare function forAny(mill: Tidemill): void;
declare function forOne<S extends Store>(mill: Tidemill<S>): Tidemill<S>;

const mills = [
  testMill(),
  new Tidemill({ store: memory() }),
  new Tidemill({ store: mongodb({ uri: 'mongodb://localhost/app' }) }),
  new Tidemill({ store: postgres({ url: 'postgres://localhost/app' }) }),
  new Tidemill({ store: embedded() }),
  new Tidemill({ store: 'memory:' }),
] as const;

const [forTests, , onMongodb] = mills;

for (const mill of mills) {
  forAny(mill);
  createDashboard({ mill, authorize: () => null });
  void drain(mill);
  void runDue(mill);
  void expectEnqueued(mill, 'x');
}

// The compiler infers the store of a test mill, too.
expectTypeOf(forTests).toEqualTypeOf<TestMill>();
expectTypeOf(forOne(forTests)).toEqualTypeOf<Tidemill<MemoryStore>>();
forOne(forTests).job('x', ({ complete }) => {
  expectTypeOf(complete).parameter(0).toHaveProperty('transaction').toEqualTypeOf<MemoryTransaction>();
});

// @ts-expect-error -- a transaction of another store
void forTests.withTransaction((transaction) => onMongodb.enqueue('x', {}, { transaction }));

// docs/stores.md, "Code for any store".
async function remind<S extends Store>(
  mill: Tidemill<S>,
  user: string,
  transaction: TransactionOf<S>,
): Promise<void> {
  await mill.enqueue('remind', { user }, { transaction, delay: '1d' });
  await mill.enqueueMany([{ name: 'remind', data: { user } }], { transaction });
}
void onMongodb.withTransaction((session) => remind(onMongodb, 'ada', session));
void forTests.withTransaction((transaction) => remind(forTests, 'ada', transaction));
// @ts-expect-error -- a transaction of another store
void forTests.withTransaction((transaction) => remind(onMongodb, 'ada', transaction));
// @ts-expect-error -- options of a job are those of its item
void onMongodb.enqueueMany([{ name: 'a' }], { delay: '1d' });
