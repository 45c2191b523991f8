import { expect, it } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import { until } from '../../support/mills.js';
import { startedUp, withProbeTask } from '../probes.js';
import { eachPlanner, type TestDatabase } from './test-databases.js';

/** A service with a task on `things` that can be made impossible to prepare, and one with a task on `others`. */
function twoServices(database: TestDatabase) {
  const runs: string[] = [];
  const mill = (): Tidemill => {
    const made = database.mill({ pollInterval: { min: 10, max: 1_000 }, leaseDuration: 3_000 });
    made.on('error', () => undefined);
    return made;
  };
  const define = (on: Tidemill, task: string, collection: string, filter = {}): Promise<void> =>
    on.reactiveTask({
      task,
      collection,
      debounce: 0,
      ...filter,
      handler: ({ docId }) => void runs.push(`${task} ${String(docId)}`),
    });
  const { filter } = database.fragile;
  return {
    runs,
    theirs: async (): Promise<Tidemill> => {
      const service = mill();
      await define(service, 'theirs', 'things', { filter });
      return service;
    },
    ours: async (): Promise<Tidemill> => {
      const service = mill();
      await define(service, 'ours', 'others');
      await withProbeTask(service);
      return service;
    },
    ran: (run: string) => until(`"${run}" among ${runs.join(', ')}`, () => runs.includes(run)),
  };
}

/** The first service has left; the second leads, and cannot prepare the task of the first. */
async function leftOut(aDatabase: () => Promise<TestDatabase>) {
  const database = await aDatabase();
  const services = twoServices(database);
  const first = await services.theirs();
  await startedUp(first, 'theirs');
  await first.stop();
  const mend = await database.fragile.spoil();
  const ours = await services.ours();
  await startedUp(ours, 'ours');
  // The resume point moves past a change of the task that is left out.
  await database.docs.insertOne({ _id: 1, status: 'go' });
  await database.others.insertOne({ _id: 1 });
  await services.ran('ours 1');
  await database.planned();
  return { ...services, database, mend, ours };
}

eachPlanner('a task that the leader cannot prepare', (aDatabase) => {
  it('the next leader that can prepare a left-out task reconciles it', async () => {
    const { database, mend, ours, theirs, ran, runs } = await leftOut(aDatabase);
    expect(await database.state('theirs')).toMatchObject({ leftOutSince: expect.any(Date) as Date });
    await mend();
    await ours.stop();
    const service = await theirs();
    await service.start();
    await ran('theirs 1');
    expect(runs.filter((run) => run === 'theirs 1')).toHaveLength(1);
  });

  it('the same leader reconciles a left-out task as soon as it can prepare it', async () => {
    const { database, mend, ours, theirs, ran } = await leftOut(aDatabase);
    await mend();
    const service = await theirs();
    await service.start();
    await ran('theirs 1');
    expect(ours.health().leader).toBe(true);
    expect(await database.state('theirs')).toMatchObject({ leftOutSince: null, leftOutReason: null });
  });

  it('a left-out task is a trouble of the leader, and the doctor reports it', async () => {
    const { mend, ours } = await leftOut(aDatabase);
    await until('the trouble is told', () =>
      ours.health().troubles.some((one) => one.startsWith('theirs: ')),
    );
    const findings = (await ours.doctor()).filter(({ check }) => check === 'reactive tasks');
    expect(findings.map(({ found }) => found).join('\n')).toContain('"theirs" has not been planned since');
    expect((await ours.tasks.planning()).leftOut).toMatchObject([{ task: 'theirs' }]);
    await mend();
  });
});
