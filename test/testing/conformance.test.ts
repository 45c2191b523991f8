import { describe, expect, it } from 'vitest';
import { memory, type MemoryStore } from '../../src/memory/index.js';
import { testStore, type StoreTests } from '../../src/testing/conformance/index.js';

interface Registered {
  readonly title: string;
  readonly skip: boolean;
  readonly body: () => Promise<void>;
}

/** The suite over a store, with a runner that only writes down what it is told. */
function registered(options: Partial<StoreTests> = {}) {
  const tests: Registered[] = [];
  let chapter = '';
  const facts = testStore({
    describe: (title, body) => {
      chapter = title;
      body();
    },
    it: (title, { skip }, body) => tests.push({ title: `${chapter}: ${title}`, skip, body }),
    open: () => memory(),
    ...options,
  });
  const body = (title: string): Registered['body'] => tests.find((test) => test.title === title)!.body;
  return { tests, body, ...facts };
}

const stale = 'settlement: refuses to settle for a holder whose job another instance has claimed';

describe('the conformance suite', () => {
  it('registers every fact once, and leaves none out of a store that can do everything', () => {
    const { tests, run, leftOut } = registered();
    expect(tests.filter(({ skip }) => skip)).toEqual([]);
    expect(leftOut).toEqual([]);
    expect(run).toEqual(tests.map(({ title }) => title));
    expect(new Set(run).size).toBe(run.length);
  });

  it('skips the facts that need what the store does without, and lists them with the reason', () => {
    const { tests, run, leftOut } = registered({ without: ['transactions', 'locks'] });
    expect(leftOut.map(({ fact }) => fact)).toEqual(
      tests.filter(({ skip }) => skip).map(({ title }) => title),
    );
    expect(run.length + leftOut.length).toBe(tests.length);
    expect(leftOut).toContainEqual({
      fact: 'unique keys: enforces unique keys inside a transaction without aborting it',
      needs: ['transactions'],
    });
    expect(leftOut.some(({ fact }) => fact.startsWith('the lock port: '))).toBe(true);
  });

  it('refuses options and capabilities that it does not know', () => {
    expect(() => registered({ opne: () => memory() } as object)).toThrow('unknown option "opne"');
    expect(() => registered({ without: ['transaction' as 'transactions'] })).toThrow(
      'without has the unknown capability "transaction". The capabilities are transactions, schedules, locks',
    );
  });

  it('proves a fact on a store of its own, and closes that store afterwards', async () => {
    const stores: unknown[] = [];
    const closed: unknown[] = [];
    const { body } = registered({
      open: async () => {
        const store = memory();
        stores.push(store);
        return store;
      },
      close: (store) => void closed.push(store),
    });
    await body(stale)();
    await body(stale)();
    expect(new Set(stores).size).toBe(2);
    expect(closed).toEqual(stores);
  });

  it('finds a store that settles for holders whose lease was lost', async () => {
    const careless = (): MemoryStore => {
      const store = memory();
      store.jobs.settle = async (settlements) => settlements.map(() => 'settled' as const);
      return store;
    };
    const closed: unknown[] = [];
    const { body } = registered({ open: careless, close: (store) => void closed.push(store) });
    await expect(body(stale)()).rejects.toThrow();
    expect(closed).toHaveLength(1);
  });

  it('finds a store that gives one job to two claims', async () => {
    const generous = (): MemoryStore => {
      const store = memory();
      const claim = store.jobs.claim.bind(store.jobs);
      let first: ReturnType<typeof claim> | undefined;
      store.jobs.claim = (request) => (first ??= claim(request));
      return store;
    };
    const { body } = registered({ open: generous });
    const title =
      'random interleavings: matches a simple model under random interleavings of workers, crashes and operators';
    await expect(body(title)()).rejects.toThrow(/^plan \d+: \[/);
  });
});
