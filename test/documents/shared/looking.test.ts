import { expect, it } from 'vitest';
import { gate, until } from '../../support/mills.js';
import { eachDocumentStore, future, past, watched } from './document-fixtures.js';

eachDocumentStore('find, count and runNow on documents', ({ name, open }) => {
  if (name === 'three methods') {
    it('find and count reject a store that cannot list documents', async () => {
      const { schedule } = watched(await open());
      await expect(schedule.find()).rejects.toThrow('cannot list');
      await expect(schedule.count()).rejects.toThrow('cannot count');
    });
    return;
  }

  it('find lists documents by state, time, error, field and cursor, and count counts them', async () => {
    const fixture = await open();
    const { schedule } = watched(fixture);
    const due = await fixture.insert({ sleepUntil: past(), note: 'due' });
    const waiting = [];
    for (const ms of [1, 2, 3, 4, 5])
      waiting.push(await fixture.insert({ sleepUntil: future(ms * 3_600_000), note: `later ${String(ms)}` }));
    const parked = await fixture.insert({ sleepUntil: null, note: 'parked' });
    const at = new Date();
    const failure = { count: 2, reason: 'no room for 17', firstAt: at, at, ended: true };
    const failed = await fixture.insert({ sleepUntil: null, note: 'failed', scheduleFailure: failure });

    const titles = async (state: 'due' | 'waiting' | 'failed' | 'parked'): Promise<string[]> =>
      (await schedule.find({ state })).items.map(({ title }) => title);
    expect(await titles('due')).toEqual([due]);
    expect(await titles('waiting')).toEqual(waiting);
    expect(await titles('failed')).toEqual([failed]);
    expect(await titles('parked')).toEqual([parked]);
    expect(await schedule.count({ state: 'waiting' })).toBe(5);
    expect(await schedule.count({ state: 'waiting' }, { limit: 3 })).toBe(3);

    const seen: string[] = [];
    let previous: string | null = null;
    for (let cursor: string | null | undefined; cursor !== null;) {
      const page = await schedule.find({}, { limit: 4, ...(cursor === undefined ? {} : { cursor }) });
      seen.push(...page.items.map(({ title }) => title));
      cursor = page.next;
      previous = page.previous;
    }
    expect(seen).toEqual([due, ...waiting]);
    const back = await schedule.find({}, { limit: 4, cursor: previous! });
    expect(back.items.map(({ title }) => title)).toEqual([due, ...waiting.slice(0, 3)]);
    const down = await schedule.find({}, { limit: 2, order: -1 });
    expect(down.items.map(({ title }) => title)).toEqual([waiting[4], waiting[3]]);

    const [found] = (await schedule.find({ data: { note: 'later 2' } })).items;
    expect(found).toMatchObject({ title: waiting[1], state: 'waiting', document: { note: 'later 2' } });
    expect((await schedule.find({ id: found!.id })).items).toMatchObject([{ title: waiting[1] }]);
    expect((await schedule.find({ state: 'failed', error: 'No Room' })).items).toMatchObject([
      { failure: { count: 2 } },
    ]);
    expect((await schedule.find({ state: 'failed', error: 'nothing like it' })).items).toEqual([]);
    const soon = { from: future(90 * 60_000), to: future(150 * 60_000) };
    expect((await schedule.find({ sleepUntil: soon })).items).toMatchObject([{ title: waiting[1] }]);
    await expect(schedule.find({ state: ['due', 'failed'] })).rejects.toThrow('state');
    expect((await schedule.find({ state: [] })).items).toEqual([]);
    await expect(schedule.find({ data: { $where: 1 } })).rejects.toThrow('data');
  });

  it('runNow makes waiting and parked documents due, and they run', async () => {
    const fixture = await open();
    const ran: unknown[] = [];
    const { schedule } = watched(fixture, { onDocument: ({ note }) => void ran.push(note) });
    await fixture.insert({ sleepUntil: future(3_600_000), note: 'later' });
    await fixture.insert({ sleepUntil: null, note: 'ended' });
    const [later] = (await schedule.find({ state: 'waiting' })).items;
    const [ended] = (await schedule.find({ state: 'parked' })).items;
    expect(await schedule.runNow(later!.id)).toBe('due');
    expect(await schedule.runNow(ended!.id)).toBe('due');
    expect(await schedule.runNow('"nobody"')).toBe('missing');
    await schedule.start();
    await until('both have run', () => ran.length === 2);
    expect([...ran].sort()).toEqual(['ended', 'later']);
  });

  it('runNow returns "running" for a document that is running under a retry policy', async () => {
    const fixture = await open();
    const [begun, end] = [gate(), gate()];
    let runs = 0;
    const { schedule } = watched(fixture, {
      retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 2 },
      onDocument: async () => {
        runs += 1;
        begun.open();
        await end.promise;
      },
    });
    await fixture.insert({ sleepUntil: past(0), note: 'long' });
    await schedule.start();
    await begun.promise;
    const [running] = (await schedule.find({})).items;
    expect(await schedule.runNow(running!.id)).toBe('running');
    end.open();
    await until('it has ended', async () => (await schedule.find({ state: 'parked' })).items.length === 1);
    expect(runs).toBe(1);
  });
});
