import { expect, it } from 'vitest';
import { until } from '../../support/mills.js';
import { eachDocumentStore, future, past, watched } from './document-fixtures.js';

eachDocumentStore('kinds of documents', ({ name, open }) => {
  it('runs a one-time document once and parks it', async () => {
    const fixture = await open();
    const { schedule, ran } = watched(fixture);
    const id = await fixture.insert({ sleepUntil: past(), note: 'hello' });
    await schedule.start();
    await until('it is done', async () => (await fixture.get(id))?.['sleepUntil'] === null);
    await until('it is idle', () => schedule.isIdle());
    expect(ran).toEqual([id]);
    expect((await fixture.get(id))?.['note']).toBe('hello');
  });

  it('runs a deferred document when it is due, and not before', async () => {
    const fixture = await open();
    const due = future(700);
    let ranAt = 0;
    const { schedule } = watched(fixture, { onDocument: () => void (ranAt = Date.now()) });
    const id = await fixture.insert({ sleepUntil: due });
    await schedule.start();
    await until('it is done', async () => (await fixture.get(id))?.['sleepUntil'] === null);
    expect(ranAt).toBeGreaterThanOrEqual(due.getTime());
  });

  it('runs a recurring document repeatedly until repeatUntil', async () => {
    const fixture = await open();
    const { schedule, ran } = watched(fixture);
    const id = await fixture.insert({
      sleepUntil: past(),
      interval: '* * * * * *',
      repeatUntil: future(6_500),
    });
    await schedule.start();
    await until('it has ended', async () => (await fixture.get(id))?.['sleepUntil'] === null);
    expect(ran.length).toBeGreaterThan(1);
    expect(ran.length).toBeLessThanOrEqual(8);
  });

  it('removes a document with autoRemove once no run is left', async () => {
    const fixture = await open();
    const { schedule, ran } = watched(fixture);
    const kept = await fixture.insert({ sleepUntil: past(), autoRemove: true, interval: '@hourly' });
    const gone = await fixture.insert({ sleepUntil: past(), autoRemove: true });
    await schedule.start();
    await until('it is gone', async () => (await fixture.get(gone)) === undefined);
    await until(
      'the other has run',
      async () => Number((await fixture.get(kept))?.['sleepUntil']) > Date.now(),
    );
    expect([...ran].sort()).toEqual([kept, gone].sort());
  });

  it('does not touch documents that are parked or not due yet', async () => {
    const fixture = await open();
    const { schedule, ran } = watched(fixture);
    const later = future(3_600_000);
    const ids = [await fixture.insert({ sleepUntil: null }), await fixture.insert({ sleepUntil: later })];
    const due = await fixture.insert({ sleepUntil: past() });
    await schedule.start();
    await until('it is idle', () => schedule.isIdle());
    expect(ran).toEqual([due]);
    expect((await fixture.get(ids[0]!))?.['sleepUntil']).toBeNull();
    expect((await fixture.get(ids[1]!))?.['sleepUntil']).toEqual(later);
  });

  it('runs the document that has been due longest first', async () => {
    const fixture = await open();
    const { schedule, ran } = watched(fixture);
    const second = await fixture.insert({ sleepUntil: past(2_000) });
    const third = await fixture.insert({ sleepUntil: past(1_000) });
    const first = await fixture.insert({ sleepUntil: past(3_000) });
    await schedule.start();
    await until('all have run', () => ran.length === 3);
    expect(ran).toEqual([first, second, third]);
  });

  // A user's own store selects documents itself.
  it.skipIf(name === 'three methods')('runs only documents that match the condition', async () => {
    const fixture = await open();
    const { schedule, ran } = watched(fixture, { condition: { kind: 'mail' } });
    const other = await fixture.insert({ sleepUntil: past(2_000), kind: 'call' });
    const mail = await fixture.insert({ sleepUntil: past(), kind: 'mail' });
    await schedule.start();
    await until('it is idle', () => schedule.isIdle());
    expect(ran).toEqual([mail]);
    expect(Number((await fixture.get(other))?.['sleepUntil'])).toBeLessThan(Date.now());
  });

  it("uses the zone in the interval, else the document's zone, else the schedule's zone", async () => {
    const fixture = await open();
    const { schedule, ran } = watched(fixture, { timezone: 'Asia/Tokyo' });
    const ids = [
      await fixture.insert({ sleepUntil: past(), interval: '0 3 * * *' }),
      await fixture.insert({ sleepUntil: past(), interval: '0 3 * * *', timezone: 'Asia/Kolkata' }),
      await fixture.insert({
        sleepUntil: past(),
        interval: 'CRON_TZ=UTC 0 3 * * *',
        timezone: 'Asia/Kolkata',
      }),
    ];
    await schedule.start();
    await until('all are planned', async () => {
      const documents = await Promise.all(ids.map((id) => fixture.get(id)));
      return ran.length === 3 && documents.every((one) => Number(one?.['sleepUntil']) > Date.now() + 1_000);
    });
    await schedule.stop();
    const times = await Promise.all(
      ids.map(async (id) => ((await fixture.get(id))?.['sleepUntil'] as Date).toISOString().slice(11, 19)),
    );
    expect(times).toEqual(['18:00:00', '21:30:00', '03:00:00']);
  });

  it('passes the handler the whole document and its schedule as it was before the lock', async () => {
    const fixture = await open();
    const given: unknown[] = [];
    const due = past(5_000);
    const { schedule } = watched(fixture, {
      onDocument: (document, { job }) =>
        void given.push(document['note'], job.sleepUntil, job.data?.['note']),
    });
    await fixture.insert({ sleepUntil: due, note: 'hello', interval: '@daily' });
    await schedule.start();
    await until('it has run', () => given.length > 0);
    expect(given).toEqual(['hello', due, 'hello']);
  });

  it('reschedule plans the next run of a document once, and then no longer matches', async () => {
    const fixture = await open();
    const { schedule } = watched(fixture);
    const id = await fixture.insert({ sleepUntil: past(), interval: '@hourly' });
    const document = (await fixture.get(id))!;
    expect(await schedule.reschedule(document)).toBe(true);
    expect(Number((await fixture.get(id))?.['sleepUntil'])).toBeGreaterThan(Date.now());
    expect(await schedule.reschedule(document)).toBe(false);
  });
});
