import { afterEach, describe, expect, it } from 'vitest';
import { Tidemill, type DocumentOptions, type TidemillOptions } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import type { MemoryStore } from '../../src/memory/store.js';
import type { Store } from '../../src/store/port.js';
import { virtualClock, type VirtualClock } from '../../src/testing/virtual-clock.js';

const mills: Tidemill[] = [];
afterEach(async () => {
  await Promise.all(mills.splice(0).map((mill) => mill.stop({ timeout: 0 })));
});

function aMill(options: Partial<TidemillOptions> = {}): {
  mill: Tidemill;
  store: MemoryStore;
  clock: VirtualClock;
} {
  const clock = virtualClock('2026-03-02T12:00:00Z');
  const store = memory({ clock });
  const mill = new Tidemill({ store, logger: false, ...options });
  mills.push(mill);
  return { mill, store, clock };
}

const nothing = (): void => undefined;

describe('mill.documents', () => {
  it('a document schedule starts and stops with its mill', async () => {
    const { mill, store, clock } = aMill();
    const seen: string[] = [];
    const schedule = mill.documents({
      collection: 'reminders',
      onStart: () => void seen.push('start'),
      onDocument: (document) => void seen.push(String(document['text'])),
      onStop: () => void seen.push('stop'),
    });
    store
      .collection('reminders')
      .insert({ sleepUntil: new Date('2026-03-03T08:00:00Z'), text: 'water the plants' });
    expect(schedule.isRunning()).toBe(false);
    await mill.start();
    expect(schedule.isRunning()).toBe(true);
    await clock.advance('1d');
    await mill.stop();
    expect(seen).toEqual(['start', 'water the plants', 'stop']);
    expect(schedule.isRunning()).toBe(false);
  });

  it('a document schedule starts and stops without its mill', async () => {
    const { mill, store, clock } = aMill();
    const seen: unknown[] = [];
    const schedule = mill.documents({ collection: 'a', onDocument: ({ _id }) => void seen.push(_id) });
    const { _id } = store.collection('a').insert({ sleepUntil: new Date(clock.now()) });
    await schedule.start();
    await clock.advance('1s');
    await schedule.stop();
    expect(seen).toEqual([_id]);
  });

  it('a document schedule does not start on an instance without the work role', async () => {
    const { mill } = aMill();
    const schedule = mill.documents({ collection: 'a', onDocument: nothing });
    await mill.start({ roles: ['maintain'] });
    expect(schedule.isRunning()).toBe(false);
  });

  it('mill.start() fails and leaves nothing running if an onStart of a document schedule fails', async () => {
    const { mill } = aMill();
    const other = mill.documents({ collection: 'a', onDocument: nothing });
    mill.documents({
      collection: 'b',
      onDocument: nothing,
      onStart: () => {
        throw new Error('not today');
      },
    });
    await expect(mill.start()).rejects.toThrow('not today');
    expect([other.isRunning(), mill.health().reasons]).toEqual([false, ['not started']]);
  });

  it("errors of a document schedule without onError go to the mill's error event", async () => {
    const { mill, store, clock } = aMill();
    const errors: string[] = [];
    mill.on('error', ({ error, where }) => errors.push(`${where}: ${error.message}`));
    mill.documents({
      collection: 'a',
      onDocument: () => {
        throw new Error('bad');
      },
    });
    store.collection('a').insert({ sleepUntil: new Date(clock.now()) });
    await mill.start();
    await clock.advance('1s');
    expect(errors).toEqual(['documents("a"): onDocument: bad']);
  });

  it('mill.stop() waits for document handlers no longer than shutdownTimeout', async () => {
    const { mill, store, clock } = aMill({ shutdownTimeout: '5s' });
    mill.documents({ collection: 'a', onDocument: () => new Promise(nothing) });
    const due = new Date(clock.now());
    const { _id } = store.collection('a').insert({ sleepUntil: due });
    await mill.start();
    await clock.advance('1s');
    const stopping = mill.stop();
    await clock.advance('10s');
    await stopping;
    expect(store.collection('a').get(_id)?.['sleepUntil']).toEqual(due);
  });

  it('health() reports a document store that has failed for a minute, without becoming unhealthy', async () => {
    const { mill, store, clock } = aMill();
    const place = store.documents({ collection: 'a' });
    store.documents = () => ({
      ...place,
      lockNext: async () => {
        throw new Error('away');
      },
    });
    mill.documents({ collection: 'a', onDocument: nothing, onError: nothing });
    await mill.start();
    await clock.advance('10s');
    expect(mill.health().troubles).toEqual([]);
    await clock.advance('1m');
    expect(mill.health().troubles).toEqual([
      expect.stringMatching(/^documents\("a"\): the store has failed for \d+ s$/u),
    ]);
    expect(mill.isHealthy()).toBe(true);
  });

  it('a document schedule starts on a store given by URL', async () => {
    const { mill } = aMill({ store: 'memory:' });
    const schedule = mill.documents({ collection: 'a', onDocument: nothing });
    await schedule.start();
    expect(schedule.isRunning()).toBe(true);
    await schedule.stop();
  });

  it.each([
    [{ collection: '' }, 'documents: collection must be a non-empty string'],
    [{ colection: 'a' }, 'Did you mean "collection"?'],
    [{ fields: { sleepUntl: 'x' } }, 'Did you mean "sleepUntil"?'],
    [{ fields: { sleepUntil: '$where' } }, "fields.sleepUntil must be a path such as 'cron.sleepUntil'"],
    [{ fields: { sleepUntil: 'a..b' } }, 'fields.sleepUntil must be a path'],
    [{ fields: { interval: null } }, 'fields.interval must be a path'],
    [{ fields: { sleepUntil: 'cron', interval: 'cron.interval' } }, 'two fields use the path "cron"'],
    [{ condition: 5 }, 'condition must be a function'],
    [{ missed: 'twice' }, 'documents("a"): missed must be one of'],
  ])('mill.documents rejects %o', (options, message) => {
    const { mill } = aMill();
    const given = { collection: 'a', onDocument: nothing, ...options } as unknown as DocumentOptions;
    expect(() => mill.documents(given)).toThrow(message);
  });

  it('mill.documents rejects a store without document support', () => {
    const { store } = aMill();
    const { jobs, instances, locks, clock, kind } = store;
    const own = { jobs, instances, locks, clock, kind } as unknown as Store;
    const mill = new Tidemill({ store: own });
    expect(() => mill.documents({ collection: 'a', onDocument: nothing })).toThrow('cannot run documents');
  });

  it("reads a document's schedule from the configured fields and hides these from job.data", async () => {
    const { mill, store, clock } = aMill();
    const documents = store.collection('a');
    const { _id } = documents.insert({
      cron: { at: new Date(clock.now()), every: '0 3 * * *', zone: 'Asia/Tokyo', other: 1 },
      text: 'x',
    });
    const data: unknown[] = [];
    mill.documents({
      collection: 'a',
      fields: {
        sleepUntil: 'cron.at',
        interval: 'cron.every',
        timezone: 'cron.zone',
        failure: 'cron.trouble',
      },
      onDocument: (_document, { job }) => void data.push(job.data),
    });
    await mill.start();
    await clock.advance('1s');
    expect(data).toEqual([{ _id, cron: { other: 1 }, text: 'x' }]);
    expect(documents.get(_id)).toMatchObject({ cron: { at: new Date('2026-03-02T18:00:00Z'), other: 1 } });
  });
});
