import { expect, it } from 'vitest';
import { gate, until } from '../../support/mills.js';
import { eachDocumentStore, past, watched, type DocumentFixture } from './document-fixtures.js';

type Doc = Record<string, unknown>;

/** The document before its run, the change during the run, and what holds afterwards. */
const CASES: readonly (readonly [string, Doc, Doc, (after: Doc | undefined) => boolean])[] = [
  ['keeps it if autoRemove is taken back', { autoRemove: true }, { autoRemove: false }, isParked],
  ['removes it if autoRemove is set', {}, { autoRemove: true }, (after) => after === undefined],
  ['plans it if it is given an interval', {}, { interval: '@yearly' }, isPlanned],
  [
    'plans it if it is given an interval instead of being removed',
    { autoRemove: true },
    { interval: '@yearly' },
    isPlanned,
  ],
  ['ends it if its interval is taken off', { interval: '@yearly' }, { interval: null }, isParked],
  [
    'ends it if repeatUntil is set to a past time',
    { interval: '@yearly' },
    { repeatUntil: past() },
    isParked,
  ],
  [
    'plans it if repeatUntil is taken off',
    { interval: '@yearly', repeatUntil: past() },
    { repeatUntil: null },
    isPlanned,
  ],
  [
    'plans it if an interval that cannot be read is mended',
    { interval: 'never ever' },
    { interval: '@yearly' },
    isPlanned,
  ],
  [
    'keeps a due time that it is given',
    { interval: '@yearly' },
    { sleepUntil: new Date('2100-01-01T00:00:00.000Z') },
    (after) => Number(after?.['sleepUntil']) === Date.parse('2100-01-01T00:00:00.000Z'),
  ],
];

function isParked(after: Doc | undefined): boolean {
  return after?.['sleepUntil'] === null;
}

function isPlanned(after: Doc | undefined): boolean {
  const at = after?.['sleepUntil'];
  return at instanceof Date && at.toISOString().endsWith('-01-01T00:00:00.000Z');
}

eachDocumentStore("a schedule that changes during its document's run", ({ name, open }) => {
  // Three methods can neither compare a schedule nor read it again; docs/documents.md says so.
  const able = name !== 'three methods';

  const inserted = async (fixture: DocumentFixture): Promise<readonly string[]> => {
    const ids: string[] = [];
    for (const [, before] of CASES) ids.push(await fixture.insert({ ...before, sleepUntil: past() }));
    return ids;
  };
  const findsAll = async (fixture: DocumentFixture, ids: readonly string[]): Promise<void> => {
    for (const [index, [what, , , holds]] of CASES.entries())
      await until(what, async () => holds(await fixture.get(ids[index] ?? '')));
  };

  it.runIf(able)('settles concurrent runs by the schedules as they are at the end', async () => {
    const fixture = await open();
    const end = gate();
    const { schedule, ran, errors } = watched(fixture, {
      concurrency: CASES.length,
      onDocument: () => end.promise,
    });
    const ids = await inserted(fixture);
    await schedule.start();
    await until('all run', () => ran.length === CASES.length);
    for (const [index, [, , change]] of CASES.entries()) await fixture.change(ids[index] ?? '', change);
    end.open();
    await findsAll(fixture, ids);
    expect(ran).toHaveLength(CASES.length);
    expect(errors).toEqual([]);
  });

  it.runIf(able)('settles runs in sequence by the schedules as they are at the end', async () => {
    const fixture = await open();
    let ids: readonly string[] = [];
    const { schedule, ran, errors } = watched(fixture, {
      onDocument: (_document, { job }) => {
        const id = String(job.id);
        return fixture.change(id, CASES[ids.indexOf(id)]?.[2] ?? {});
      },
    });
    ids = await inserted(fixture);
    await schedule.start();
    await until('all have run', () => ran.length === CASES.length);
    await findsAll(fixture, ids);
    expect(errors).toEqual([]);
  });

  it.runIf(able)('settles a run by the latest of several changes to its schedule', async () => {
    const fixture = await open();
    const { schedule, ran } = watched(fixture, {
      retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 2 },
      onDocument: async (_document, { job }) => {
        await fixture.change(String(job.id), { interval: '@yearly' });
        if (ran.length === 1) throw new Error('once');
        await fixture.change(String(job.id), { interval: null, autoRemove: true });
      },
    });
    const id = await fixture.insert({ sleepUntil: past() });
    await schedule.start();
    await until('it is gone', async () => (await fixture.get(id)) === undefined);
    expect(ran).toEqual([id, id]);
  });

  it('reports no second run if a document is deleted during a run longer than its lock', async () => {
    const fixture = await open();
    const aborted = gate();
    const { schedule, ran, errors } = watched(fixture, {
      lockDuration: '600ms',
      onDocument: async (_document, { signal }) => {
        const begunAt = performance.now();
        signal.addEventListener('abort', () => aborted.open());
        await aborted.promise;
        await until('its lock would be over', () => performance.now() > begunAt + 1_000);
      },
    });
    const id = await fixture.insert({ sleepUntil: past() });
    await schedule.start();
    await until('it runs', () => ran.length === 1);
    await fixture.remove(id);
    await until('it is idle', () => schedule.isIdle());
    expect(errors).toEqual([]);
  });
});
