import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { OptionError } from '../../src/core/errors.js';
import { checkPayload, type PayloadRules } from '../../src/core/payload.js';
import { memory } from '../../src/memory/index.js';
import { aMill } from '../support/mills.js';

const RULES: PayloadRules = { maxDepth: 80 };
const check = (value: unknown, rules: PayloadRules = RULES, maxBytes = 1e6): unknown =>
  checkPayload('enqueue', 'data', value, rules, maxBytes);

const own = (key: string, value: unknown): object =>
  Object.defineProperty<object>({}, key, { value, enumerable: true, configurable: true, writable: true });

function nested(levels: number): unknown {
  let value: unknown = 'bottom';
  for (let level = 0; level < levels; level += 1) value = level % 2 === 0 ? { inner: value } : [value];
  return value;
}

const KEPT: Readonly<Record<string, unknown>> = {
  'a text': 'plain',
  'an empty text': '',
  'a number': -1.5e-300,
  'a whole number beyond 32 bits': 2 ** 53 - 1,
  'a boolean': false,
  null: null,
  'an empty object': {},
  'an empty list': [],
  'a date': new Date('2025-01-01T00:00:00.001Z'),
  'dates deep inside': { list: [{ at: new Date(0) }, [new Date(-1)]] },
  'texts that look like operators': { a: '$set', b: '$$NOW', c: '$data.secret' },
  'keys that look like operators': { $set: { $inc: 1 }, $ne: null, $where: '1' },
  'a key that looks like a reference': { $ref: 'users', $id: 5, $db: 'x' },
  'keys with dots': { 'a.b': 1, '.': 2, 'a..b': { 'c.': 3 } },
  'an empty key': { '': 'nameless' },
  'integer-like keys': { 10: 'ten', 2: 'two', '01': 'one' },
  __proto__: own('__proto__', { polluted: true }),
  'names of Object.prototype': { constructor: 1, toString: 2, hasOwnProperty: 3, valueOf: null },
  'a long text': 'x'.repeat(100_000),
  'texts beyond ASCII': { 'clé 🗝': 'žluťoučký kůň 🐎 \u{10ffff}' },
  'control characters': '\t\r\n\u0001\u007f',
  'what looks like a date': '2025-01-01T00:00:00.000Z',
  'deep nesting': nested(79),
  'a key called undefined': { undefined: 'undefined' },
};

describe('accepted payloads', () => {
  it.each(Object.entries(KEPT))('the payload "%s" is copied without loss', (_what, value) => {
    expect(check(value)).toStrictEqual(value);
  });

  it.each(Object.entries(KEPT))('the payload "%s" survives the whole life of a job', async (_what, value) => {
    const mill = aMill(memory());
    let seen: unknown = 'nothing';
    const type = mill.job('carry', ({ data, progress, log }) => {
      seen = data;
      progress(data);
      log('seen', data);
      return data;
    });
    const job = await type.enqueue(value);
    expect(job.data).toStrictEqual(value);
    await mill.start();
    expect(await mill.jobs.result(job.id)).toStrictEqual(value);
    expect(seen).toStrictEqual(value);
    const kept = await mill.jobs.get(job.id);
    expect(kept).toMatchObject({ status: 'completed' });
    expect(kept!.data).toStrictEqual(value);
    expect(kept!.progress).toStrictEqual(value);
    expect(kept!.logs![0]!.fields).toStrictEqual(value);
  });

  it('any JSON value is copied without loss', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), (value) => {
        fc.pre(!JSON.stringify(value).includes('\\u0000'));
        expect(check(value)).toEqual(value);
      }),
    );
  });

  it('a payload with a __proto__ key pollutes no prototype', () => {
    const copy = check(JSON.parse('{ "__proto__": { "polluted": true } }')) as Record<string, unknown>;
    expect(Object.getPrototypeOf(copy)).toBe(Object.prototype);
    expect(Object.keys(copy)).toEqual(['__proto__']);
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
  });

  it('a checked payload is a copy that later changes to the original do not affect', () => {
    const at = new Date(5);
    const given = { list: [{ n: 1 }], at };
    const copy = check(given) as typeof given;
    given.list[0]!.n = 2;
    at.setTime(6);
    expect(copy).toEqual({ list: [{ n: 1 }], at: new Date(5) });
  });

  it('a payload loses properties that are undefined, and nothing else', () => {
    expect(check({ a: undefined, b: { c: undefined, d: null } })).toStrictEqual({ b: { d: null } });
  });

  it('a payload object without a prototype counts as a plain object', () => {
    const bare = Object.assign(Object.create(null) as object, { a: 1 });
    expect(check(bare)).toStrictEqual({ a: 1 });
  });

  it('a payload may contain the same object twice', () => {
    const shared = { n: 1 };
    expect(check({ a: shared, b: [shared, shared] })).toEqual({ a: { n: 1 }, b: [{ n: 1 }, { n: 1 }] });
  });

  it('a payload keeps values beyond JSON that the store can hold', () => {
    const keeps = (value: object): number | null => (value instanceof Uint8Array ? value.length : null);
    const bytes = new Uint8Array(10);
    expect((check({ bytes }, { ...RULES, keeps }) as { bytes: unknown }).bytes).toBe(bytes);
    expect(() => check({ bytes })).toThrow('data.bytes is an instance of Uint8Array');
  });
});

class Money {
  amount = 1;
}
const circle: Record<string, unknown> = { a: [{}] };
(circle['a'] as Record<string, unknown>[])[0]!['back'] = circle;
const loop: unknown[] = [];
loop.push(loop);
// eslint-disable-next-line no-sparse-arrays -- a hole is what this is about
const sparse = [1, , 3];

const REFUSED: readonly (readonly [string, unknown, string])[] = [
  ['NaN', { a: { b: Number.NaN } }, 'data.a.b is NaN, which would not be read back unchanged'],
  ['Infinity', [Infinity], 'data[0] is Infinity, which would not be read back unchanged'],
  [
    '-Infinity',
    { deep: [{ n: -Infinity }] },
    'data.deep[0].n is -Infinity, which would not be read back unchanged',
  ],
  ['a bigint', { id: 5n }, 'data.id is a bigint, which would not be read back unchanged'],
  [
    'undefined in a list',
    { list: [1, undefined] },
    'data.list[1] is undefined, which would be read back as null',
  ],
  ['a hole in a list', sparse, 'data[1] is undefined, which would be read back as null'],
  ['a function', { run: () => 1 }, 'data.run is of type function, which cannot be stored'],
  ['a method called toJSON', { toJSON: () => 1 }, 'data.toJSON is of type function, which cannot be stored'],
  ['a symbol', { s: Symbol('s') }, 'data.s is of type symbol, which cannot be stored'],
  ['a symbol as a key', { a: { [Symbol('k')]: 1 } }, 'data.a has a symbol as a key'],
  ['a Map', { m: new Map() }, 'data.m is an instance of Map, which would not be read back unchanged'],
  ['a Set', { s: new Set([1]) }, 'data.s is an instance of Set, which would not be read back unchanged'],
  ['an instance of a class', { price: new Money() }, 'data.price is an instance of Money'],
  ['an Error', { error: new Error('x') }, 'data.error is an instance of Error'],
  ['a RegExp', [/x/], 'data[0] is an instance of RegExp'],
  ['a Promise', { p: Promise.resolve() }, 'data.p is an instance of Promise'],
  ['a boxed number', { n: Object(1) as unknown }, 'data.n is an instance of Number'],
  ['a typed array', { bytes: new Uint8Array(2) }, 'data.bytes is an instance of Uint8Array'],
  ['an invalid date', { at: new Date(Number.NaN) }, 'data.at is an invalid Date, which cannot be stored'],
  ['a circle through objects', circle, 'data.a[0].back refers back to itself'],
  ['a circle through lists', loop, 'data[0] refers back to itself'],
  ['too deep a nesting', nested(81), 'is nested deeper than 80 levels'],
  ['a nesting deep enough to break a naive walk', nested(100_000), 'is nested deeper than 80 levels'],
  ['U+0000 in a key', { 'a\0b': 1 }, 'has U+0000 in a key'],
  ['a function as the whole', () => 1, 'data is of type function, which cannot be stored'],
  ['NaN as the whole', Number.NaN, 'data is NaN, which would not be read back unchanged'],
  ['an instance as the whole', new Money(), 'data is an instance of Money'],
];

describe('rejected payloads', () => {
  it.each(REFUSED)('rejects a payload with %s and names the path', (_what, value, message) => {
    expect(() => check(value)).toThrow(OptionError);
    expect(() => check(value)).toThrow(message);
    expect(() => check(value)).toThrow(/^enqueue: data/);
  });

  it.each(REFUSED)(
    'enqueue, enqueueMany and schedule reject a payload with %s and write nothing',
    async (_what, value, message) => {
      const mill = aMill(memory());
      await expect(mill.enqueue('carry', value)).rejects.toThrow(message);
      await expect(mill.enqueueMany([{ name: 'ok' }, { name: 'carry', data: value }])).rejects.toThrow(
        message,
      );
      await expect(mill.schedule('@daily', 'carry', value)).rejects.toThrow(message);
      expect(await mill.jobs.count()).toBe(0);
    },
  );

  it('rejects texts and keys that the store cannot hold', () => {
    const rules: PayloadRules = {
      ...RULES,
      refusesText: (text) => (text.includes('\0') ? 'has U+0000, which cannot be stored' : null),
    };
    expect(() => check({ a: ['x\0'] }, rules)).toThrow('data.a[0] has U+0000, which cannot be stored');
    expect(() => check({ 'x\0': 1 }, rules)).toThrow('U+0000');
    expect(check({ a: 'x\0' })).toEqual({ a: 'x\0' });
  });

  it('rejects a payload above maxPayloadBytes and names the option', () => {
    expect(() => check({ text: 'x'.repeat(200) }, RULES, 100)).toThrow(
      /more than the limit of 100 \(maxPayloadBytes\)/,
    );
    expect(check({ text: 'x'.repeat(50) }, RULES, 100)).toEqual({ text: 'x'.repeat(50) });
  });

  it('measures the exact size only of large payloads', () => {
    let measured = 0;
    const rules: PayloadRules = { ...RULES, measure: () => (measured += 1) };
    check('x'.repeat(1_000), rules, 1e9);
    expect(measured).toBe(0);
    check('x'.repeat(2_000_000), rules, 1e9);
    expect(measured).toBe(1);
  });
});

describe('results and progress', () => {
  it('a result that cannot be stored fails the attempt with the path of the value', async () => {
    const mill = aMill(memory());
    const type = mill.job('bad', { retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 1 } }, () => ({
      total: Number.NaN,
    }));
    await mill.start();
    const { id } = await type.enqueue({});
    await expect(mill.jobs.result(id)).rejects.toThrow(
      'result.total is NaN, which would not be read back unchanged',
    );
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'failed', failCount: 1 });
  });

  it('progress and log fields that cannot be stored fail the attempt', async () => {
    const mill = aMill(memory());
    const once = { retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 1 } } as const;
    const first = mill.job('progress', once, (job) => job.progress(new Map()));
    const second = mill.job('log', once, (job) => job.log('x', { f: () => 1 }));
    await mill.start();
    await expect(mill.jobs.result((await first.enqueue({})).id)).rejects.toThrow(
      'progress is an instance of Map, which would not be read back unchanged',
    );
    await expect(mill.jobs.result((await second.enqueue({})).id)).rejects.toThrow(
      'log fields.f is of type function, which cannot be stored',
    );
  });
});
