import { expect, it } from 'vitest';
import { StoreError } from '../../../src/core/errors.js';
import type { DocumentJobStore, DocumentPlace } from '../../../src/store/documents.js';
import { gate, until } from '../../support/mills.js';
import {
  eachDocumentStore,
  past,
  sleepUntil,
  watched,
  type AnyStore,
  type DocumentFixture,
} from './document-fixtures.js';

// A machine that keeps this process waiting for a third of it must not end a lock.
const LOCK_MS = 5_000;

/** Documents that schedulers cannot reach for a while: calls fail before they reach the database. */
class Outage {
  isDown = false;

  before(home: AnyStore): AnyStore {
    if ('lockNext' in home) return this.#guarded(home);
    return new Proxy(home, {
      get: (target, key) => {
        const value: unknown = Reflect.get(target, key, target);
        if (key === 'documents')
          return (fixture: DocumentPlace) => this.#guarded(target.documents?.(fixture) as DocumentJobStore);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    });
  }

  #guarded<Documents extends object>(documents: Documents): Documents {
    return new Proxy(documents, {
      get: (target, key) => {
        const value: unknown = Reflect.get(target, key, target);
        if (typeof value !== 'function') return value;
        return (...given: unknown[]): unknown =>
          this.isDown
            ? Promise.reject(new StoreError(`${String(key)}: connection refused`, { transient: true }))
            : (Reflect.apply(value, target, given) as unknown);
      },
    });
  }
}

const lockEnds = (fixture: DocumentFixture, ids: readonly string[]): Promise<number[]> =>
  Promise.all(ids.map(async (id) => Number(await sleepUntil(fixture, id))));

eachDocumentStore('an outage that outlasts the locks of documents', ({ name, open }) => {
  // The only way to ask three methods whether the store is back is a lock.
  it.skipIf(name === 'three methods')(
    'runs no document twice after an outage that outlasts its lock',
    async () => {
      const fixture = await open();
      const outage = new Outage();
      const end = gate();
      const onDocument = ({ kind }: Record<string, unknown>): Promise<unknown> | undefined =>
        kind === 'long' ? end.promise : undefined;
      const schedules = [fixture.store, fixture.another(), fixture.another()].map((store) =>
        watched(fixture, { lockDuration: LOCK_MS, concurrency: 3, onDocument }, outage.before(store)),
      );
      const ran = (): string[] => schedules.flatMap((one) => one.ran);
      const ids = await Promise.all(
        Array.from({ length: 4 }, () => fixture.insert({ kind: 'long', sleepUntil: past() })),
      );
      for (const { schedule } of schedules) await schedule.start();
      await until('all run', () => ran().length >= ids.length);
      outage.isDown = true;
      await until('all locks have ended', async () =>
        (await lockEnds(fixture, ids)).every((at) => at < Date.now() - 100),
      );
      const other = await fixture.insert({ kind: 'short', sleepUntil: past() });
      outage.isDown = false;
      await until('a document that nobody holds has run', () => ran().includes(other));
      await until('the others are renewed', async () =>
        (await lockEnds(fixture, ids)).every((at) => at > Date.now()),
      );
      end.open();
      await until('all are recorded', async () =>
        (await Promise.all(ids.map((id) => sleepUntil(fixture, id)))).every((at) => at === null),
      );
      expect(ran().sort()).toEqual([...ids, other].sort());
    },
  );

  it('renews an expired lock after an outage and records the end of the run', async () => {
    const fixture = await open();
    const outage = new Outage();
    const [end, told] = [gate(), gate()];
    const { schedule, errors, ran } = watched(
      fixture,
      {
        lockDuration: 500,
        onDocument: (_document, { signal }) => {
          signal.addEventListener('abort', () => told.open());
          return end.promise;
        },
      },
      outage.before(fixture.store),
    );
    const id = await fixture.insert({ sleepUntil: past() });
    await schedule.start();
    await until('it runs', () => ran.length === 1);
    outage.isDown = true;
    await told.promise;
    await until('its lock has ended', async () => Number(await sleepUntil(fixture, id)) < Date.now());
    outage.isDown = false;
    await until('it is renewed', async () => Number(await sleepUntil(fixture, id)) > Date.now());
    end.open();
    await until('it is recorded', async () => (await sleepUntil(fixture, id)) === null);
    expect(ran).toEqual([id]);
    expect(new Set(errors.map(({ where }) => where))).toEqual(new Set(['renew']));
  });
});
