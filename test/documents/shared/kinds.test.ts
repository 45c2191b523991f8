import { expect, it } from 'vitest';
import { until } from '../../support/mills.js';
import { eachPlace, future, past, watched } from './places.js';

eachPlace('documents by their own schedule', ({ name, open }) => {
  it('runs a one-time document once, and leaves it with no due time', async () => {
    const place = await open();
    const { schedule, ran } = watched(place);
    const id = await place.insert({ sleepUntil: past(), note: 'hello' });
    await schedule.start();
    await until('it is done', async () => (await place.get(id))?.['sleepUntil'] === null);
    await until('it is idle', () => schedule.isIdle());
    expect(ran).toEqual([id]);
    expect((await place.get(id))?.['note']).toBe('hello');
  });

  it('runs a deferred document when its time has come, and not before', async () => {
    const place = await open();
    const due = future(700);
    let ranAt = 0;
    const { schedule } = watched(place, { onDocument: () => void (ranAt = Date.now()) });
    const id = await place.insert({ sleepUntil: due });
    await schedule.start();
    await until('it is done', async () => (await place.get(id))?.['sleepUntil'] === null);
    expect(ranAt).toBeGreaterThanOrEqual(due.getTime());
  });

  it('runs a recurring document again and again, until its repeatUntil', async () => {
    const place = await open();
    const { schedule, ran } = watched(place);
    const id = await place.insert({
      sleepUntil: past(),
      interval: '* * * * * *',
      repeatUntil: future(6_500),
    });
    await schedule.start();
    await until('it has ended', async () => (await place.get(id))?.['sleepUntil'] === null);
    expect(ran.length).toBeGreaterThan(1);
    expect(ran.length).toBeLessThanOrEqual(8);
  });

  it('removes a document that asks for it, when no run is left', async () => {
    const place = await open();
    const { schedule, ran } = watched(place);
    const kept = await place.insert({ sleepUntil: past(), autoRemove: true, interval: '@hourly' });
    const gone = await place.insert({ sleepUntil: past(), autoRemove: true });
    await schedule.start();
    await until('it is gone', async () => (await place.get(gone)) === undefined);
    await until(
      'the other has run',
      async () => Number((await place.get(kept))?.['sleepUntil']) > Date.now(),
    );
    expect([...ran].sort()).toEqual([kept, gone].sort());
  });

  it('leaves documents alone that have no due time, or one that has not come', async () => {
    const place = await open();
    const { schedule, ran } = watched(place);
    const later = future(3_600_000);
    const ids = [await place.insert({ sleepUntil: null }), await place.insert({ sleepUntil: later })];
    const due = await place.insert({ sleepUntil: past() });
    await schedule.start();
    await until('it is idle', () => schedule.isIdle());
    expect(ran).toEqual([due]);
    expect((await place.get(ids[0]!))?.['sleepUntil']).toBeNull();
    expect((await place.get(ids[1]!))?.['sleepUntil']).toEqual(later);
  });

  it('runs those that are due longest first', async () => {
    const place = await open();
    const { schedule, ran } = watched(place);
    const second = await place.insert({ sleepUntil: past(2_000) });
    const third = await place.insert({ sleepUntil: past(1_000) });
    const first = await place.insert({ sleepUntil: past(3_000) });
    await schedule.start();
    await until('all have run', () => ran.length === 3);
    expect(ran).toEqual([first, second, third]);
  });

  // A store of the user's own chooses for itself.
  it.skipIf(name === 'three methods')('runs only documents that match the condition', async () => {
    const place = await open();
    const { schedule, ran } = watched(place, { condition: { kind: 'mail' } });
    const other = await place.insert({ sleepUntil: past(2_000), kind: 'call' });
    const mail = await place.insert({ sleepUntil: past(), kind: 'mail' });
    await schedule.start();
    await until('it is idle', () => schedule.isIdle());
    expect(ran).toEqual([mail]);
    expect(Number((await place.get(other))?.['sleepUntil'])).toBeLessThan(Date.now());
  });

  it('reads an interval in the zone of the document, of the text, or of the schedule', async () => {
    const place = await open();
    const { schedule, ran } = watched(place, { timezone: 'Asia/Tokyo' });
    const ids = [
      await place.insert({ sleepUntil: past(), interval: '0 3 * * *' }),
      await place.insert({ sleepUntil: past(), interval: '0 3 * * *', timezone: 'Asia/Kolkata' }),
      await place.insert({ sleepUntil: past(), interval: 'CRON_TZ=UTC 0 3 * * *', timezone: 'Asia/Kolkata' }),
    ];
    await schedule.start();
    await until('all are planned', async () => {
      const documents = await Promise.all(ids.map((id) => place.get(id)));
      return ran.length === 3 && documents.every((one) => Number(one?.['sleepUntil']) > Date.now() + 1_000);
    });
    await schedule.stop();
    const times = await Promise.all(
      ids.map(async (id) => ((await place.get(id))?.['sleepUntil'] as Date).toISOString().slice(11, 19)),
    );
    expect(times).toEqual(['18:00:00', '21:30:00', '03:00:00']);
  });

  it('hands over the whole document, and its schedule as it was before the lock', async () => {
    const place = await open();
    const given: unknown[] = [];
    const due = past(5_000);
    const { schedule } = watched(place, {
      onDocument: (document, { job }) =>
        void given.push(document['note'], job.sleepUntil, job.data?.['note']),
    });
    await place.insert({ sleepUntil: due, note: 'hello', interval: '@daily' });
    await schedule.start();
    await until('it has run', () => given.length > 0);
    expect(given).toEqual(['hello', due, 'hello']);
  });

  it('plans a document anew by hand', async () => {
    const place = await open();
    const { schedule } = watched(place);
    const id = await place.insert({ sleepUntil: past(), interval: '@hourly' });
    const document = (await place.get(id))!;
    expect(await schedule.reschedule(document)).toBe(true);
    expect(Number((await place.get(id))?.['sleepUntil'])).toBeGreaterThan(Date.now());
    expect(await schedule.reschedule(document)).toBe(false);
  });
});
