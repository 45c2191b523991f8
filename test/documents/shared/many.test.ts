import { expect, it } from 'vitest';
import { gate, until } from '../../support/mills.js';
import { eachDocumentStore, past, watched, type DocumentFixture } from './document-fixtures.js';

const COUNT = 60;

async function insertMany(fixture: DocumentFixture, fields: Record<string, unknown> = {}): Promise<string[]> {
  return Promise.all(
    Array.from({ length: COUNT }, (_, at) => fixture.insert({ sleepUntil: past(1_000 + at), ...fields })),
  );
}

const allDone = async (fixture: DocumentFixture, ids: readonly string[]): Promise<boolean> =>
  (await Promise.all(ids.map((id) => fixture.get(id)))).every((one) => one?.['sleepUntil'] === null);

eachDocumentStore('many documents', ({ open }) => {
  it.each([1, 8])(
    'several schedulers run each document exactly once with a concurrency of %i',
    async (concurrency) => {
      const fixture = await open();
      const schedulers = [fixture.store, fixture.another(), fixture.another()].map((store) =>
        watched(
          fixture,
          { concurrency, onDocument: () => new Promise((resolve) => setImmediate(resolve)) },
          store,
        ),
      );
      const ids = await insertMany(fixture);
      await Promise.all(schedulers.map(({ schedule }) => schedule.start()));
      await until('all are done', () => allDone(fixture, ids));
      expect(schedulers.flatMap(({ ran }) => ran).sort()).toEqual([...ids].sort());
      expect(schedulers.flatMap(({ errors }) => errors)).toEqual([]);
    },
  );

  it('runs 20 documents at once, and settles each according to its own schedule', async () => {
    const fixture = await open();
    const full = gate();
    let running = 0;
    let most = 0;
    const kinds = ['once', 'gone', 'again', 'wrong', 'fails'] as const;
    const { schedule, ran } = watched(fixture, {
      concurrency: 20,
      retryPolicy: { type: 'fixed', interval: '1h' },
      onDocument: async (document) => {
        most = Math.max(most, (running += 1));
        if (most === 20) full.open();
        await full.promise;
        running -= 1;
        if (document['kind'] === 'fails') throw new Error('bad');
      },
    });
    const ids = await Promise.all(
      Array.from({ length: COUNT }, (_, at) => {
        const kind = kinds[at % kinds.length]!;
        return fixture.insert({
          kind,
          sleepUntil: past(),
          ...(kind === 'gone' ? { autoRemove: true } : {}),
          ...(kind === 'again' ? { interval: '@yearly' } : {}),
          ...(kind === 'wrong' ? { interval: 'now and then' } : {}),
        });
      }),
    );
    await schedule.start();
    await until('it is idle', () => schedule.isIdle());
    expect(most).toBe(20);
    expect([...ran].sort()).toEqual([...ids].sort());
    const documents = await Promise.all(ids.map((id) => fixture.get(id)));
    const left = (kind: string): unknown[] => documents.filter((one) => one?.['kind'] === kind);
    expect(documents.filter((one) => one === undefined)).toHaveLength(COUNT / 5);
    expect(left('once').every((one) => (one as Record<string, unknown>)['sleepUntil'] === null)).toBe(true);
    for (const kind of ['again', 'fails'])
      for (const one of left(kind))
        expect(Number((one as Record<string, unknown>)['sleepUntil'])).toBeGreaterThan(Date.now());
    for (const one of left('wrong'))
      expect(one).toMatchObject({ sleepUntil: null, scheduleFailure: { ended: true } });
    for (const one of left('fails'))
      expect(one).toMatchObject({ scheduleFailure: { count: 1, ended: false } });
  });

  it('stop() finishes the running documents and leaves the others due', async () => {
    const fixture = await open();
    const end = gate();
    const { schedule, ran } = watched(fixture, { concurrency: 5, onDocument: () => end.promise });
    const ids = await insertMany(fixture);
    await schedule.start();
    await until('some run', () => ran.length === 5);
    const stopping = schedule.stop();
    end.open();
    await stopping;
    expect(ran).toHaveLength(5);
    const documents = await Promise.all(ids.map((id) => fixture.get(id)));
    expect(documents.filter((one) => one?.['sleepUntil'] === null)).toHaveLength(5);
    expect(documents.every((one) => Number(one?.['sleepUntil']) < Date.now())).toBe(true);
  });

  it('runs a document once for each missed time with missed "all"', async () => {
    const fixture = await open();
    const times: number[] = [];
    const { schedule } = watched(fixture, {
      missed: 'all',
      onDocument: (_document, { job }) => void times.push(Number(job.sleepUntil)),
    });
    const first = Math.floor(Date.now() / 60_000) * 60_000 - 180_000;
    const id = await fixture.insert({
      sleepUntil: new Date(first),
      interval: '* * * * *',
      repeatUntil: new Date(first + 120_000),
    });
    await schedule.start();
    await until('it has ended', () => allDone(fixture, [id]));
    expect(times).toEqual([first, first + 60_000, first + 120_000]);
  });

  it('skips a run that is two hours late with missed "skip"', async () => {
    const fixture = await open();
    const { schedule, ran } = watched(fixture, { missed: 'skip' });
    const due = past(7_200_000);
    due.setUTCSeconds(0, 0);
    // Daily at the missed time, so that no other run is due while the test runs.
    const interval = `${due.getUTCMinutes()} ${due.getUTCHours()} * * *`;
    const id = await fixture.insert({ sleepUntil: due, interval });
    await schedule.start();
    await until('it is planned', async () => Number((await fixture.get(id))?.['sleepUntil']) > Date.now());
    await until('it is idle', () => schedule.isIdle());
    expect(ran).toEqual([]);
    expect((await fixture.get(id))?.['sleepUntil']).toEqual(new Date(due.getTime() + 86_400_000));
  });
});
