import { exchange, newScope, type Scope } from '../../../store/limits/scope.js';
import type {
  Instance,
  LimitStore,
  ScopeAsk,
  ScopeGrant,
  ScopeLimits,
  ScopeRecord,
  ScopeRef,
  Store,
} from '../../../store/port.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { anInstance, present, until } from '../fixtures.js';

const API: ScopeRef = { kind: 'shared', name: 'erp-api' };
/** Long enough that nothing ends by itself while a fact lasts. */
const LONG = 600_000;

/** The port of a store that has limits. */
export const limitsOf = ({ limits }: Store): LimitStore => present(limits);

export async function define(store: Store, limits: ScopeLimits, scope: ScopeRef = API): Promise<void> {
  expect(await limitsOf(store).define(scope, { limits, code: { limits }, set: null }, null)).toBe('written');
}

/** One life, which numbers its asks. */
export class LimitedLife {
  readonly instance: Instance = anInstance();
  readonly #limits: LimitStore;
  readonly #scope: ScopeRef;
  #seq = 0;

  constructor(store: Store, scope: ScopeRef = API) {
    this.#limits = limitsOf(store);
    this.#scope = scope;
  }

  get life(): string {
    return this.instance.life;
  }

  ask(fields: Partial<ScopeAsk> = {}): ScopeAsk {
    this.#seq += 1;
    return { scope: this.#scope, seq: this.#seq, hold: 0, inUse: 0, starts: 0, withinMs: LONG, ...fields };
  }

  async send(ask: ScopeAsk): Promise<ScopeGrant | 'stale' | undefined> {
    return (await this.#limits.exchange(this.life, [ask]))[0];
  }

  async get(fields: Partial<ScopeAsk> = {}): Promise<ScopeGrant> {
    const grant = await this.send(this.ask(fields));
    if (grant === undefined || grant === 'stale') throw new Error(`no grant, but ${String(grant)}`);
    return grant;
  }

  /** Asks for so many permits and starts. */
  take(count: number, fields: Partial<ScopeAsk> = {}): Promise<ScopeGrant> {
    return this.get({ hold: count, starts: count, ...fields });
  }
}

async function seen(store: Store, scope: ScopeRef = API): Promise<ScopeRecord> {
  const { scopes } = await limitsOf(store).read([scope]);
  return present(scopes[0]);
}

const sumHeld = ({ holders }: ScopeRecord): number => holders.reduce((sum, { held }) => sum + held, 0);

export const permits: Chapter = chapter({ title: 'permits of a limit', needs: ['limits'] }, [
  fact('grants permits up to the limit, and says who was refused', async ({ opened }) => {
    const store = await opened();
    await define(store, { concurrency: 5 });
    const [first, second] = [new LimitedLife(store), new LimitedLife(store)];
    expect(await first.take(3)).toMatchObject({
      held: 3,
      starts: 3,
      contended: false,
      limits: { concurrency: 5 },
    });
    expect(await second.take(4)).toMatchObject({ held: 2, starts: 2, refusedBy: 'concurrency' });
    expect(sumHeld(await seen(store))).toBe(5);
    expect(await first.take(3, { inUse: 3 })).toMatchObject({ held: 3, starts: 0, contended: true });
  }),

  fact('tells of each definition by its revision', async ({ opened }) => {
    const store = await opened();
    const limits = limitsOf(store);
    const seen = [await limits.revision()];
    await define(store, { concurrency: 5 });
    seen.push(await limits.revision());
    await limits.define(API, { limits: { concurrency: 6 }, code: null, set: null }, 1);
    seen.push(await limits.revision());
    await define(store, { concurrency: 1 }, { kind: 'job', name: 'work' });
    seen.push(await limits.revision());
    expect(new Set(seen).size).toBe(seen.length);
    await new LimitedLife(store).take(1);
    expect(await limits.revision()).toBe(seen.at(-1));
    const { scopes } = await limits.read();
    expect(scopes.reduce((sum, { rev }) => sum + rev, 0)).toBe(seen.at(-1));
  }),

  fact('says that jobs of a paused or limited name start by a claim only', async ({ opened }) => {
    const { jobs, limits } = await opened();
    const scope: ScopeRef = { kind: 'job', name: 'work' };
    const change = (rules: ScopeLimits, ifRev: number | null) =>
      present(limits).define(scope, { limits: rules, code: null, set: null }, ifRev);
    expect(await jobs.isHeldUp('work')).toBe(false);
    await change({ perKey: {} }, null);
    expect([await jobs.isHeldUp('work'), await jobs.isHeldUp('other')]).toEqual([true, false]);
    await change({}, 1);
    expect(await jobs.isHeldUp('work')).toBe(false);
    await jobs.pauseName('work');
    expect([await jobs.isHeldUp('work'), await jobs.isHeldUp('other')]).toEqual([true, false]);
  }),

  fact('grants to others what a life gives back', async ({ opened }) => {
    const store = await opened();
    await define(store, { concurrency: 2 });
    const [first, second] = [new LimitedLife(store), new LimitedLife(store)];
    await first.take(2);
    expect(await second.take(1)).toMatchObject({ held: 0, starts: 0 });
    expect(await first.get({ hold: 1, inUse: 1 })).toMatchObject({ held: 1, contended: true });
    expect(await second.take(2)).toMatchObject({ held: 1, starts: 1, refusedBy: 'concurrency' });
  }),

  fact('grants as many as are asked for without a limit, and counts them', async ({ opened }) => {
    const store = await opened();
    await define(store, {});
    const asker = new LimitedLife(store);
    expect(await asker.take(1_000)).toMatchObject({ held: 1_000, starts: 1_000 });
    expect(sumHeld(await seen(store))).toBe(1_000);
  }),

  fact('never holds more than the limit, whatever many lives ask at once', async ({ opened }) => {
    const store = await opened();
    await define(store, { concurrency: 7 });
    const askers = Array.from({ length: 6 }, () => new LimitedLife(store));
    await Promise.all(
      askers.map(async (asker, n) => {
        for (let round = 0; round < 12; round += 1) {
          await asker.take((n * 3 + round * 5) % 6);
          expect(sumHeld(await seen(store))).toBeLessThanOrEqual(7);
        }
      }),
    );
    const last = await Promise.all(askers.map((asker) => asker.take(9)));
    expect(last.reduce((sum, { held }) => sum + held, 0)).toBe(7);
  }),

  fact('answers a repeated ask as before, and counts it once', async ({ opened }) => {
    const store = await opened();
    await define(store, { concurrency: 5, rate: { limit: 4, perMs: LONG, burst: 4 } });
    const asker = new LimitedLife(store);
    const ask = asker.ask({ hold: 3, starts: 3 });
    const grant = present(await asker.send(ask)) as ScopeGrant;
    const other = new LimitedLife(store);
    await other.take(1);
    const { at, held, starts, notAfter, countedAs, trial } = grant;
    expect(await asker.send(ask)).toMatchObject({ at, held, starts, notAfter, countedAs, trial });
    expect(await seen(store)).toMatchObject({ startsInWindow: 4 });
    expect(sumHeld(await seen(store))).toBe(4);
  }),

  fact('passes over an ask that comes after a later one', async ({ opened }) => {
    const store = await opened();
    await define(store, { concurrency: 5 });
    const asker = new LimitedLife(store);
    const late = asker.ask({ hold: 5, starts: 5 });
    await asker.take(2);
    expect(await asker.send(late)).toBe('stale');
    expect(sumHeld(await seen(store))).toBe(2);
  }),

  fact('answers undefined for a scope that does not exist, and serves the others', async ({ opened }) => {
    const store = await opened();
    await define(store, { concurrency: 1 });
    const asker = new LimitedLife(store);
    const missing = asker.ask({ scope: { kind: 'job', name: 'erp-api' }, hold: 1, starts: 1 });
    const grants = await limitsOf(store).exchange(asker.life, [missing, asker.ask({ hold: 1, starts: 1 })]);
    expect(grants[0]).toBeUndefined();
    expect(grants[1]).toMatchObject({ held: 1, starts: 1 });
    expect((await limitsOf(store).read([missing.scope])).scopes).toEqual([]);
  }),

  fact(
    'takes no permit away when a limit is lowered, and grants none until enough are back',
    async ({ opened }) => {
      const store = await opened();
      await define(store, { concurrency: 4 });
      const asker = new LimitedLife(store);
      await asker.take(4);
      const { rev } = await seen(store);
      await limitsOf(store).define(API, { limits: { concurrency: 2 }, code: null, set: null }, rev);
      expect(await asker.get({ hold: 4, inUse: 4 })).toMatchObject({ held: 4, limits: { concurrency: 2 } });
      expect(await asker.get({ hold: 2, inUse: 2 })).toMatchObject({ held: 2 });
      expect(await new LimitedLife(store).take(1)).toMatchObject({ held: 0, refusedBy: 'concurrency' });
    },
  ),

  fact('frees the permits of a dropped life when its last claim must have ended', async ({ opened }) => {
    const store = await opened();
    await define(store, { concurrency: 2 });
    const [dead, dying] = [new LimitedLife(store), new LimitedLife(store)];
    await dead.take(1, { withinMs: 0 });
    const { notAfter } = await dying.take(1, { withinMs: 400 });
    await limitsOf(store).drop(dead.life);
    await limitsOf(store).drop(dying.life);
    const other = new LimitedLife(store);
    expect(await other.take(2)).toMatchObject({ held: 1 });
    const grant = await until('the other permit is free', async () => {
      const given = await other.take(2);
      return given.held === 2 && given;
    });
    expect(grant.at.getTime()).toBeGreaterThanOrEqual(notAfter.getTime());
    await limitsOf(store).drop(dying.life);
    expect((await seen(store)).holders).toMatchObject([{ life: other.life, held: 2, gone: false }]);
  }),

  fact('gives nothing to a dropped life whose claims may still be on their way', async ({ opened }) => {
    const store = await opened();
    await define(store, { concurrency: 2 });
    const dead = new LimitedLife(store);
    await dead.take(1);
    await limitsOf(store).drop(dead.life);
    expect(await dead.send(dead.ask({ hold: 2, starts: 2 }))).toBe('stale');
    expect((await seen(store)).holders).toMatchObject([{ life: dead.life, held: 1, gone: true }]);
  }),

  fact('tells all instances when a life gives back what others wait for', async ({ opened }) => {
    const store = await opened();
    await define(store, { concurrency: 1 });
    const freed: string[] = [];
    const watch = await store.watch({
      wake: () => undefined,
      cancel: () => undefined,
      news: () => undefined,
      broken: () => undefined,
      freed: (scopes) => freed.push(...scopes.map(({ kind, name }) => `${kind}:${name}`)),
    });
    if ('unavailable' in watch) return;
    const [first, second] = [new LimitedLife(store), new LimitedLife(store)];
    await first.take(1);
    await second.take(1);
    await first.get({ hold: 0 });
    await until('the others are told', () => freed.includes('shared:erp-api'));
    await watch.close();
  }),

  fact('keeps scopes apart whose names differ in any character', async ({ opened }) => {
    const store = await opened();
    const names = ['a', 'A', 'a.b', '$a', "o'brien", 'job:x', 'x y', '\u017e', '"', '\\'];
    for (const name of names) {
      await define(store, { concurrency: names.indexOf(name) + 1 }, { kind: 'job', name });
      await define(store, { concurrency: 50 }, { kind: 'task', name });
    }
    for (const name of names) {
      const grant = await new LimitedLife(store, { kind: 'job', name }).take(100);
      expect(grant.held).toBe(names.indexOf(name) + 1);
    }
    const { scopes } = await limitsOf(store).read();
    expect(scopes).toHaveLength(2 * names.length);
    expect(new Set(scopes.map(({ scope }) => scope.name)).size).toBe(names.length);
  }),

  fact('defines a scope only if its definition is the one that was read', async ({ opened }) => {
    const store = await opened();
    const limits = limitsOf(store);
    const definition = { limits: { concurrency: 3 }, code: { by: 'a' }, set: { concurrency: null } };
    expect(await limits.define(API, definition, null)).toBe('written');
    expect(await limits.define(API, definition, null)).toBe('changed');
    const { rev } = await seen(store);
    const all: ScopeLimits = {
      concurrency: 4,
      rate: { limit: 10, perMs: 1_000, burst: 2 },
      perKey: { order: 'fifo', whileRetrying: 'pass', rate: { limit: 1, perMs: 50, burst: 1 } },
      breaker: { failures: 3, withinMs: 1_000, pauseMs: 500 },
      shared: ['erp-api'],
    };
    const both = await Promise.all([
      limits.define(API, { limits: all, code: null, set: { note: 'x' } }, rev),
      limits.define(API, { limits: all, code: null, set: { note: 'x' } }, rev),
    ]);
    expect(both.sort()).toEqual(['changed', 'written']);
    expect(await seen(store)).toMatchObject({
      scope: API,
      rev: rev + 1,
      limits: all,
      code: null,
      set: { note: 'x' },
    });
  }),

  fact('answers any series of asks as the model does', async ({ opened }) => {
    const store = await opened();
    const limits: ScopeLimits = {
      concurrency: 6,
      rate: { limit: 8, perMs: 4_000, burst: 3 },
      breaker: { failures: 3, withinMs: 1_600, pauseMs: 20 },
    };
    await define(store, limits);
    let model: Scope = newScope(limits);
    const askers = [new LimitedLife(store), new LimitedLife(store), new LimitedLife(store)];
    const last = new Map<LimitedLife, ScopeGrant>();
    let seed = 7;
    const dice = (sides: number): number => (seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648) % sides;
    for (let round = 0; round < 120; round += 1) {
      const asker = present(askers[dice(3)]);
      const before = last.get(asker);
      const inUse = dice((before?.held ?? 0) + 1);
      const ask = asker.ask({
        hold: inUse + dice(4),
        inUse,
        starts: dice(4),
        withinMs: dice(3) * 50,
        ...(before !== undefined && dice(2) === 0
          ? { unused: [{ countedAs: before.countedAs, count: dice(3) }] }
          : {}),
        ...(dice(3) === 0 ? { failures: dice(3) } : {}),
        ...(before?.trial === true
          ? { trial: (['succeeded', 'failed', 'unused'] as const)[dice(3)] ?? 'unused' }
          : {}),
      });
      const grant = present(await asker.send(ask)) as ScopeGrant;
      const expected = exchange(model, asker.life, ask, grant.at.getTime());
      expect(grant).toEqual(expected.grant);
      model = expected.scope;
      last.set(asker, grant);
    }
  }),
]);
