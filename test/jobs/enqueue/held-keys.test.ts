import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import { mongodb } from '../../../src/mongodb/index.js';
import type { Store } from '../../../src/store/port.js';
import { aMill, gate } from '../../support/mills.js';
import { freshPostgres, freshUri } from '../../support/stores.js';

/** Two stores on one database. */
const places: Readonly<Record<string, () => readonly [Store, Store]>> = {
  mongodb: () => {
    const uri = freshUri();
    return [mongodb({ uri }), mongodb({ uri })];
  },
  postgres: () => {
    const schema = `test_held_${randomBytes(6).toString('hex')}`;
    return [freshPostgres({ schema }), freshPostgres({ schema })];
  },
};

/** Enqueues with these keys in a transaction, and keeps it open until told. */
async function holding(mill: Tidemill, keys: readonly string[]): Promise<() => Promise<void>> {
  const [written, end] = [gate(), gate()];
  const transaction = mill.withTransaction(async (handle) => {
    for (const uniqueKey of keys) await mill.enqueue('digest', {}, { uniqueKey, transaction: handle });
    written.open();
    await end.promise;
  });
  await Promise.race([written.promise, transaction]);
  return () => {
    end.open();
    return transaction;
  };
}

for (const [name, place] of Object.entries(places)) {
  describe(`unique keys held by an open transaction (${name})`, () => {
    it('an enqueue waits for a unique key that an open transaction holds, and others do not', async () => {
      const [web, other] = place().map((store) => aMill(store)) as [Tidemill, Tidemill];
      await web.enqueue('warm-up', {});
      const commit = await holding(other, ['k1', 'k2']);
      const waiting = ['k1', 'k2'].map((uniqueKey) => web.enqueue('digest', {}, { uniqueKey }));
      let ended = 0;
      for (const one of waiting) void one.finally(() => (ended += 1));
      for (let round = 0; round < 3; round += 1) {
        const others = ['a', 'b', 'c'].map((key) =>
          web.enqueue('digest', {}, { uniqueKey: `${key}${String(round)}` }),
        );
        const plain = ['x', 'y', 'z'].map((kind) => web.enqueue(kind, {}));
        const enqueued = await Promise.all([...others, ...plain]);
        expect(enqueued.map(({ outcome }) => outcome)).toEqual(Array(6).fill('created'));
      }
      expect(ended).toBe(0);
      await commit();
      expect((await Promise.all(waiting)).map(({ outcome }) => outcome)).toEqual(['existing', 'existing']);
      expect(await web.jobs.count()).toBe(1 + 2 + 18);
    });
  });

  it(`two producers that enqueue the same unique keys in opposite order store each once (${name})`, async () => {
    const mills = place().map((store) => aMill(store)) as [Tidemill, Tidemill];
    for (const mill of mills) await mill.enqueue('warm-up', {});
    for (let round = 0; round < 3; round += 1) {
      const keys = Array.from({ length: 500 }, (_, n) => `${String(round)}-${String(n)}`);
      const asked = (ordered: readonly string[]): { name: string; uniqueKey: string }[] =>
        ordered.map((uniqueKey) => ({ name: 'digest', uniqueKey }));
      const answers = await Promise.all([
        mills[0].enqueueMany(asked(keys)),
        mills[1].enqueueMany(asked([...keys].reverse())),
      ]);
      const outcomes = answers.flat().map(({ outcome }) => outcome);
      expect(outcomes.filter((outcome) => outcome === 'created')).toHaveLength(500);
      expect(outcomes).toHaveLength(1_000);
    }
  });
}
