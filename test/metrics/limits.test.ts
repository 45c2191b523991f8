import { isDeepStrictEqual } from 'node:util';
import { describe, expect, it } from 'vitest';
import { memory } from '../../src/memory/index.js';
import { aMill, gate, until } from '../support/mills.js';
import { scraped, under } from './text.js';

describe('metrics of limits', () => {
  it('a scrape has use, capacity, waiting, starts and breaker of each limit, and nothing of keys', async () => {
    const mill = aMill(memory());
    const held = gate();
    mill.limit('erp-api', { rate: { limit: 50, per: '10m', burst: 50 } });
    mill.job(
      'call-api',
      {
        concurrency: 5,
        limits: { concurrency: 2, shared: ['erp-api'] },
        breaker: { failures: 20, within: '1m', pause: '30s' },
      },
      () => held.promise,
    );
    mill.job(
      'by-key',
      { concurrency: 5, limits: { perKey: { key: 'customer', concurrency: 1 } } },
      () => held.promise,
    );
    await mill.start();
    await mill.enqueueMany([
      ...Array.from({ length: 5 }, () => ({ name: 'call-api', data: {} })),
      ...Array.from({ length: 3 }, () => ({ name: 'by-key', data: { customer: 'acme' } })),
    ]);
    const used = {
      'starts_total{kind="job",name="call-api"}': 2,
      'starts_total{kind="shared",name="erp-api"}': 2,
      'starts_total{kind="job",name="by-key"}': 1,
      'running{kind="job",name="call-api"}': 2,
      'running{kind="shared",name="erp-api"}': 2,
      'capacity{kind="job",name="call-api"}': 2,
      'window_starts{kind="shared",name="erp-api"}': 2,
      'window_capacity{kind="shared",name="erp-api"}': 50,
      'waiting{kind="job",name="call-api"}': 3,
      'waiting{kind="shared",name="erp-api"}': 3,
      'waiting{kind="job",name="by-key"}': 2,
      'breaker_state{kind="job",name="call-api",state="closed"}': 1,
      'breaker_state{kind="job",name="call-api",state="open"}': 0,
      'breaker_state{kind="job",name="call-api",state="trial"}': 0,
    };
    // An instance asks again from time to time, and gives back at once what it cannot use.
    const now = await until('the limits are used up', async () => {
      const values = await scraped(mill);
      const limits = Object.entries(under(values, 'tidemill_limit_'));
      const found = Object.fromEntries(limits.filter(([name]) => !name.startsWith('held_up')));
      const isHeldUp = values.has('tidemill_limit_held_up_total{kind="job",name="by-key",by="key"}');
      return isHeldUp && isDeepStrictEqual(found, used) && values;
    });
    expect([...now.keys()].filter((key) => key.includes('acme'))).toEqual([]);
    await mill.limits.breaker('call-api', 'open');
    expect(
      (await scraped(mill)).get('tidemill_limit_breaker_state{kind="job",name="call-api",state="open"}'),
    ).toBe(1);
    held.open();
  });

  it('a cluster without limits has no metrics of limits', async () => {
    const mill = aMill(memory());
    mill.job('mail', () => undefined);
    await mill.start();
    await mill.jobs.result((await mill.enqueue('mail')).id);
    expect([...(await scraped(mill)).keys()].filter((key) => key.startsWith('tidemill_limit'))).toEqual([]);
  });
});
