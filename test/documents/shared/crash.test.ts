import { expect, it } from 'vitest';
import { gate, until } from '../../support/mills.js';
import { eachDocumentStore, past, sleepUntil, watched } from './document-fixtures.js';

const retryPolicy = { type: 'fixed', interval: 0, maxAttempts: 2 } as const;

eachDocumentStore('documents of a crashed process', ({ name, open }) => {
  // Three methods leave no mark from which a crash could be detected.
  const fact = it.skipIf(name === 'three methods');

  fact('counts a crash as a failed attempt, with a retry policy', async () => {
    const fixture = await open();
    const lockedUntil = past(2_000);
    const left = { sleepUntil: lockedUntil, scheduleFailure: { lockedUntil } };
    const counted: unknown[] = [];
    const { schedule, errors, ran } = watched(fixture, {
      retryPolicy,
      onDocument: async ({ kind }, { job }) => {
        counted.push((await fixture.get(String(job.id)))?.['scheduleFailure']);
        if (kind === 'fails') throw new Error('bad');
      },
    });
    const works = await fixture.insert({ ...left, interval: '@yearly' });
    const fails = await fixture.insert({ ...left, kind: 'fails' });
    await schedule.start();
    await until('both are over', async () => {
      const [one, two] = await Promise.all([sleepUntil(fixture, works), sleepUntil(fixture, fails)]);
      return Number(one) > Date.now() + 600_000 && two === null;
    });
    await schedule.stop();
    expect([...ran].sort()).toEqual([works, fails].sort());
    // While it runs again: the next crash would be the second.
    for (const failure of counted)
      expect(failure).toMatchObject({ count: 1, ended: false, lockedUntil: expect.anything() as unknown });
    expect((await fixture.get(works))?.['scheduleFailure'] ?? null).toBeNull();
    expect((await fixture.get(fails))?.['scheduleFailure']).toMatchObject({
      count: 2,
      ended: true,
      reason: 'bad',
    });
    expect(errors.map(({ where }) => where).sort()).toEqual(['crash', 'crash', 'onDocument']);
  });

  fact('ends a document without another run if a crash used its last attempt', async () => {
    const fixture = await open();
    const lockedUntil = past(2_000);
    const at = past(3_000);
    const { schedule, errors, ran } = watched(fixture, { retryPolicy });
    const failure = { count: 1, reason: 'died', firstAt: at, at, ended: false, lockedUntil };
    const id = await fixture.insert({ sleepUntil: lockedUntil, autoRemove: true, scheduleFailure: failure });
    await schedule.start();
    await until('it has ended', async () => (await sleepUntil(fixture, id)) === null);
    expect(ran).toEqual([]);
    expect((await fixture.get(id))?.['scheduleFailure']).toMatchObject({
      count: 2,
      ended: true,
      reason: expect.stringContaining('process died') as unknown,
    });
    expect(errors.map(({ where }) => where)).toEqual(['crash']);
  });

  fact('does not count a crash if the handler moved sleepUntil into the past', async () => {
    const fixture = await open();
    const end = gate();
    const { schedule, errors, ran } = watched(fixture, {
      lockDuration: '4s',
      retryPolicy,
      onDocument: async (_document, { job }) => {
        await end.promise;
        if (ran.length === 1) await fixture.change(String(job.id), { sleepUntil: past() });
      },
    });
    const id = await fixture.insert({ sleepUntil: past(), interval: '@yearly' });
    const lock = async (): Promise<{ readonly end: number; readonly mark: number }> => {
      const document = await fixture.get(id);
      const { lockedUntil } = (document?.['scheduleFailure'] ?? {}) as { lockedUntil?: string | Date };
      return { end: Number(document?.['sleepUntil']), mark: Number(new Date(lockedUntil ?? 0)) };
    };
    await schedule.start();
    await until('it runs', () => ran.length === 1);
    const first = await lock();
    expect(first.mark).toBe(first.end);
    const renewed = await until('its lock is renewed', async () => {
      const now = await lock();
      return now.end > first.end && now;
    });
    expect(renewed.mark).toBe(renewed.end);
    end.open();
    await until('it has run again', () => ran.length === 2);
    await until('it is planned', async () => Number(await sleepUntil(fixture, id)) > Date.now() + 600_000);
    await schedule.stop();
    expect(errors).toEqual([]);
    expect((await fixture.get(id))?.['scheduleFailure'] ?? null).toBeNull();
  });
});
