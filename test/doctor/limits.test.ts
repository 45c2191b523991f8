import { describe, expect, it } from 'vitest';
import type { JobOptions, Tidemill } from '../../src/index.js';
import { memory, type MemoryStore } from '../../src/memory/index.js';
import { virtualClock } from '../../src/testing/index.js';
import { aMill, gate, until } from '../support/mills.js';
import { findingOf } from './findings.js';

/** A service that has started, with a job and its limits. */
async function aService(
  store: MemoryStore,
  instanceId: string,
  limits?: JobOptions['limits'],
): Promise<Tidemill> {
  const mill = aMill(store, { instanceId });
  mill.job('call-api', limits === undefined ? {} : { limits }, () => undefined);
  await mill.start();
  return mill;
}

describe('the doctor on limits', () => {
  it('the doctor finds a limit that two live services define differently, until they agree', async () => {
    const store = memory();
    const shop = await aService(store, 'shop', { concurrency: 5 });
    expect(await findingOf(shop, 'limits')).toMatchObject({
      status: 'ok',
      found: expect.stringContaining('1 defined') as string,
    });
    const crm = await aService(store, 'crm', { concurrency: 10 });
    expect(await findingOf(shop, 'limits')).toMatchObject({
      status: 'warn',
      found:
        'live instances define the limit of the job "call-api" differently: 10 at once holds, and shop has 5 at once. The latest start wins',
      fix: expect.stringContaining('finish the deployment') as string,
    });
    expect(await shop.limits.get('call-api')).toMatchObject({
      differs: { by: 'shop', limits: { concurrency: 5 } },
    });
    await crm.stop();
    const mended = await aService(store, 'crm', { concurrency: 5 });
    expect((await findingOf(mended, 'limits')).status).toBe('ok');
  });

  it('the doctor finds a service that runs a limited job without its limit', async () => {
    const store = memory();
    const shop = await aService(store, 'shop', { concurrency: 5 });
    const crm = await aService(store, 'crm');
    expect((await findingOf(crm, 'limits')).found).toContain('no limit holds, and shop has 5 at once');
    await shop.stop();
    // The others agree once it is gone.
    expect((await findingOf(crm, 'limits')).status).toBe('skipped');
  });

  it('the doctor takes an instance that came back with the new code for one that agrees', async () => {
    const store = memory();
    const old = await aService(store, 'web-1', { concurrency: 5 });
    const web = await aService(store, 'web-2', { concurrency: 10 });
    expect((await findingOf(web, 'limits')).status).toBe('warn');
    await old.stop();
    await aService(store, 'web-1', { concurrency: 10 });
    expect((await findingOf(web, 'limits')).status).toBe('ok');
  });

  it('the doctor reminds of a change by hand after a week, and of the command that resets it', async () => {
    const clock = virtualClock('2026-01-01');
    const mill = aMill(memory({ clock }));
    mill.job('call-api', () => undefined);
    await mill.limits.set('call-api', { rate: { limit: 5, per: '1m' } });
    await clock.advance('6d');
    expect((await findingOf(mill, 'limits')).status).toBe('ok');
    await clock.advance('2d');
    expect(await findingOf(mill, 'limits')).toMatchObject({
      status: 'warn',
      found:
        'the limit of the job "call-api" was changed by hand 8 days ago: 5 per 1m; the code says no limit',
      fix: 'if it is still right, write it into the code; then: tidemill limits reset call-api',
    });
    await mill.limits.reset('call-api');
    expect((await findingOf(mill, 'limits')).status).toBe('skipped');
  });

  it('the doctor finds producers that give no key', async () => {
    const store = memory();
    const held = gate();
    const mill = aMill(store);
    mill.job('call-api', { limits: { perKey: { key: 'customer', concurrency: 1 } } }, () => held.promise);
    await mill.start();
    await mill.enqueue('call-api', { customer: 'acme' });
    expect((await findingOf(mill, 'limits')).status).toBe('ok');
    const producer = aMill(store);
    await producer.enqueueMany([{ name: 'call-api', data: { customer: 'acme' } }, { name: 'call-api' }]);
    await until('one of them runs', async () => (await mill.jobs.count({ status: 'processing' })) === 2);
    expect(await findingOf(mill, 'limits')).toMatchObject({
      status: 'warn',
      found: expect.stringContaining('2 due or running jobs of "call-api" have no key') as string,
      fix: expect.stringContaining('enqueue("call-api", data, { key })') as string,
    });
    held.open();
  });
});
