import { describe, expect, it } from 'vitest';
import { OptionError, defineJob } from '../../../src/index.js';
import { memory } from '../../../src/memory/index.js';
import { aMill } from '../../support/mills.js';

const rate = { limit: 10, per: '1s' };

describe('refusals of limits', () => {
  it.each([
    ['an unknown limit', { concurency: 2 }, 'unknown option "concurency". Did you mean "concurrency"?'],
    ['no concurrency at all', { concurrency: 0 }, 'must be at least 1, got 0. To stop the work, pause'],
    ['half a job', { concurrency: 1.5 }, 'concurrency must be a whole number'],
    ['an unknown part of a rate', { rate: { ...rate, bust: 2 } }, 'Did you mean "burst"?'],
    ['a rate of nothing', { rate: { limit: 0, per: '1s' } }, 'limit must be at least 1, got 0'],
    ['a rate without a window', { rate: { limit: 1 } }, 'per must be a duration'],
    ['a burst above the limit', { rate: { ...rate, burst: 11 } }, 'burst must be a whole number'],
    ['keys without a key', { perKey: { concurrency: 1 } }, 'key must be a dot path'],
    ['an unknown part of keys', { perKey: { key: 'a', ordr: 'fifo' } }, 'Did you mean "order"?'],
    ['another order', { perKey: { key: 'a', order: 'lifo' } }, 'order must be'],
    [
      'an order with a concurrency',
      { perKey: { key: 'a', order: 'fifo', concurrency: 1 } },
      `order: 'fifo' runs one job of a key at a time; leave concurrency out.`,
    ],
    [
      'a wait for retries without an order',
      { perKey: { key: 'a', whileRetrying: 'hold' } },
      `whileRetrying needs order: 'fifo'`,
    ],
    ['a shared limit that is no list', { shared: 'erp' }, 'shared must be a list'],
  ])('a definition with %s is refused', (_what, limits, message) => {
    const mill = aMill(memory());
    const define = (): unknown => mill.job('work', { limits: limits as object }, () => undefined);
    expect(define).toThrow(OptionError);
    expect(define).toThrow(message);
    expect(() => defineJob('work', { limits: limits as object })).toThrow(message);
  });

  it('a breaker needs all of its parts, and knows no others', () => {
    const mill = aMill(memory());
    const define = (breaker: object) => (): unknown =>
      mill.job('work', { breaker: breaker as never }, () => undefined);
    expect(define({ failures: 3, within: '1m' })).toThrow('pause must be a duration');
    expect(define({ failures: 0, within: '1m', pause: '1s' })).toThrow('failures must be a whole number');
    expect(define({ failures: 1, within: '1m', pause: '1s', paus: 1 })).toThrow('Did you mean "pause"?');
  });

  it('a shared limit must limit something, once, under a name that no job has', async () => {
    const mill = aMill(memory());
    expect(() => {
      mill.limit('erp', {});
    }).toThrow('it would limit nothing');
    expect(() => {
      mill.limit('erp', { perKey: { key: 'a' } } as object);
    }).toThrow('unknown option "perKey"');
    mill.limit('erp-api', { concurrency: 1 });
    expect(() => {
      mill.limit('erp-api', { concurrency: 2 });
    }).toThrow('this mill has a limit of that name already');
    mill.job('work', { limits: { shared: ['erp-apl'] } }, () => undefined);
    await expect(mill.start()).rejects.toThrow('Did you mean "erp-api"?');
  });

  it.each([
    ['an object', { key: {} }, 'the key at "key" of the payload must be a text or a number'],
    ['a boolean', { key: true }, 'must be a text or a number, got true'],
    ['a long text', { key: 'x'.repeat(1_025) }, 'must have at most 1024 characters, got 1025'],
  ])('an enqueue whose payload has %s for a key is refused', async (_what, data, message) => {
    const mill = aMill(memory());
    mill.job('work', { limits: { perKey: { key: 'key' } } }, () => undefined);
    await expect(mill.enqueue('work', data)).rejects.toThrow(message);
    expect(await mill.jobs.count()).toBe(0);
  });

  it('a key by hand is refused if it is no text or number, or too long', async () => {
    const mill = aMill(memory());
    const enqueue = (key: unknown): Promise<unknown> => mill.enqueue('work', {}, { key: key as string });
    await expect(enqueue(['a'])).rejects.toThrow('key must be a text or a number');
    await expect(enqueue('x'.repeat(1_025))).rejects.toThrow('key must have at most 1024 characters');
    await expect(enqueue(Number.NaN)).rejects.toThrow('key must be a text or a number');
  });

  it('a job whose keys run in order takes no priority', async () => {
    const mill = aMill(memory());
    mill.job('work', { limits: { perKey: { key: 'key', order: 'fifo' } } }, () => undefined);
    await expect(mill.enqueue('work', { key: 'a' }, { priority: 1 })).rejects.toThrow('takes no priority');
  });

  it('a change of a limit is checked as a definition is', async () => {
    const mill = aMill(memory());
    mill.limit('erp-api', { concurrency: 1 });
    mill.job('work', { limits: { perKey: { key: 'a', order: 'fifo' } } }, () => undefined);
    mill.job('plain', () => undefined);
    await mill.start();
    const { limits } = mill;
    await expect(limits.set('work', { concurrency: 0 })).rejects.toThrow('pause its name instead');
    await expect(limits.set('work', { perKey: { concurrency: 2 } })).rejects.toThrow(
      'leave perKey.concurrency',
    );
    await expect(limits.set('plain', { perKey: { concurrency: 2 } })).rejects.toThrow('needs a definition');
    await expect(limits.set('work', { rat: rate } as object)).rejects.toThrow('Did you mean "rate"?');
    await expect(limits.set('erp-apl', { concurrency: 2 })).rejects.toThrow('Did you mean "erp-api"?');
    await expect(limits.reset('works')).rejects.toThrow('Did you mean "work"?');
    await expect(limits.keys('works')).rejects.toThrow('Did you mean "work"?');
    await expect(limits.keys('work', { limit: 0 })).rejects.toThrow('limit must be a whole number');
    await expect(limits.keys('work', { most: 1 } as object)).rejects.toThrow('unknown option "most"');
    await expect(limits.breaker('erp-api', 'open')).rejects.toThrow('it has no breaker');
    await expect(limits.breaker('erp-api', 'shut' as 'open')).rejects.toThrow('to must be');
    expect(await limits.keys('plain')).toEqual([]);
  });
});
