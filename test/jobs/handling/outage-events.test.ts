import { describe, expect, it } from 'vitest';
import type { Logger } from '../../../src/core/logger.js';
import { StoreError, TidemillError } from '../../../src/index.js';
import { OutageWatch } from '../../../src/mill/outage-watch.js';
import type { Shortage, Store } from '../../../src/store/port.js';
import { virtualClock } from '../../../src/testing/index.js';
import { aMill, gate, until } from '../../support/mills.js';
import { Outage } from '../../support/outage.js';
import { opened } from '../../support/port.js';
import { eachStore } from '../../support/stores.js';

eachStore('an outage of the database', ({ open }) => {
  it('is told once when it begins and once when it ends, with few errors in between', async () => {
    const outage = new Outage(await opened(open()));
    const lines: string[] = [];
    const nothing = (): void => undefined;
    const warn = (_: object, text: string): void => {
      if (text.startsWith('the database')) lines.push(text);
    };
    const logger: Logger = { debug: nothing, info: nothing, error: nothing, warn };
    const mill = aMill(outage.store, { logger, leaseDuration: 1_500, pollInterval: { min: 20, max: 40 } });
    const [lost, back] = [gate(), gate()];
    const told: unknown[] = [];
    const places: string[] = [];
    mill.on('error', ({ error, where }) => {
      if (error instanceof StoreError) places.push(where);
    });
    mill.on('store:lost', ({ error }) => {
      told.push(error.message);
      lost.open();
    });
    mill.on('store:back', ({ forMs }) => {
      told.push(forMs);
      back.open();
    });
    mill.job('a', () => 1);
    await mill.start();
    outage.reach = 'down';
    await lost.promise;
    expect(mill.health().troubles).toEqual([
      expect.stringMatching(/^the database has not answered for \d+ s: .*refused/u),
    ]);
    await until('the lease is lost, after many tries', () => !mill.isHealthy());
    outage.reach = 'up';
    await back.promise;
    await until('it works again', () => mill.isHealthy());
    expect(told).toEqual([expect.stringContaining('connection refused'), expect.any(Number)]);
    expect(lines).toEqual([
      expect.stringMatching(/^the database does not answer; work waits until it does: .*refused/u),
      expect.stringMatching(/^the database answers again, after \d+(?:\.\d)? s; work continues$/u),
    ]);
    expect(places.length).toBeGreaterThan(0);
    expect(places.toSorted()).toEqual([...new Set(places)].toSorted());
    expect(mill.health().troubles).toEqual([]);
  });
});

const refused = new StoreError('claim: connection refused', { transient: true });

/** A watch on a database whose answer the test decides, and what it said. */
function watching(answer: () => Promise<boolean>, shortage?: Shortage, isStarted = (): boolean => true) {
  const clock = virtualClock('2025-01-01');
  const said: string[] = [];
  const store = { clock, shortage: () => shortage, jobs: { isPaused: answer } } as unknown as Store;
  const watch = new OutageWatch({
    store: () => store,
    isStarted,
    isSilent: () => false,
    report: (_error, where) => void said.push(where),
    lost: () => void said.push('lost'),
    back: (forMs) => void said.push(`back after ${String(forMs)}`),
  });
  return { clock, watch, said };
}

describe('errors that no caller sees', () => {
  it('are reported once in ten seconds from each place while they may pass', async () => {
    const { clock, watch, said } = watching(() => Promise.reject(refused));
    for (let second = 0; second < 12; second += 1) {
      watch.fault(refused, 'claim');
      watch.fault(refused, 'renew');
      await clock.advance('1s');
    }
    expect(said).toEqual(['claim', 'renew', 'lost', 'claim', 'renew']);
  });

  it('are all reported if they will not pass', () => {
    const { watch, said } = watching(() => Promise.resolve(false));
    for (let n = 0; n < 3; n += 1) watch.fault(new TidemillError('OUTCOME_REFUSED', 'no'), 'settle');
    expect(said).toEqual(['settle', 'settle', 'settle']);
  });

  it('are no outage if the database answers, or refuses the question', async () => {
    for (const answer of [Promise.resolve(false), Promise.reject(new StoreError('permission denied'))]) {
      const { clock, watch, said } = watching(() => answer);
      watch.fault(refused, 'claim');
      await clock.advance('20s');
      expect(said).toEqual(['claim']);
    }
  });

  it('are no outage while questions wait for a connection', async () => {
    const shortage = { stuckMs: 2_000, text: 'none is free' };
    const { clock, watch, said } = watching(() => Promise.reject(refused), shortage);
    watch.fault(refused, 'claim');
    await clock.advance('20s');
    expect(said).toEqual(['claim']);
    expect(watch.troubles).toEqual([]);
  });

  it('leave no question to a store that was closed by a stop', async () => {
    let [started, asked] = [true, 0];
    const closed = (): never => {
      asked += 1;
      throw new StoreError('The store is closed.', { transient: true });
    };
    const { clock, watch, said } = watching(closed, undefined, () => started);
    watch.fault(refused, 'claim');
    await clock.advance('500ms');
    started = false;
    await clock.advance('10s');
    watch.fault(refused, 'deregister');
    await clock.advance('10s');
    expect(said).toEqual(['claim', 'lost', 'deregister']);
    expect(asked).toBe(1);
    expect(watch.troubles).toEqual([]);
  });

  it('are an outage if no answer comes within five seconds, until one comes', async () => {
    let answer: (paused: boolean) => void = () => undefined;
    const { clock, watch, said } = watching(() => new Promise((resolve) => (answer = resolve)));
    watch.fault(refused, 'claim');
    await clock.advance('4s');
    expect(said).toEqual(['claim']);
    await clock.advance('8s');
    expect(watch.troubles).toEqual(['the database has not answered for 12 s: claim: connection refused']);
    answer(false);
    await clock.advance('1s');
    expect(said).toEqual(['claim', 'lost', 'back after 12000']);
  });
});
