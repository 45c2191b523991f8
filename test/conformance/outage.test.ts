import { expect, it } from 'vitest';
import type { LockAnswer } from '../../src/store/port.js';
import { aMill, gate, until } from '../support/mills.js';
import { aClaim, aJob, anInstance, opened } from '../support/port.js';
import { Outage } from '../support/outage.js';
import { eachStore } from '../support/stores.js';

const LEASE_MS = 1_500;
const INSTANCES = 3;

eachStore('an outage of the database', ({ open, name }) => {
  it.each(name === 'memory' ? (['down', 'read-only'] as const) : (['down'] as const))(
    'that outlasts every lease (%s) charges no job and runs none beside itself',
    async (reach) => {
      const store = await opened(open());
      const outage = new Outage(store);
      const end = gate();
      const starts = new Map<string, number>();
      const running = new Map<string, number>();
      let beside = 0;
      const counted = async (id: string, work: Promise<unknown>): Promise<void> => {
        starts.set(id, (starts.get(id) ?? 0) + 1);
        running.set(id, (running.get(id) ?? 0) + 1);
        if ((running.get(id) ?? 0) > 1) beside += 1;
        await work.finally(() => running.set(id, (running.get(id) ?? 0) - 1));
      };
      const mills = Array.from({ length: INSTANCES }, () =>
        aMill(outage.store, { leaseDuration: LEASE_MS, concurrency: 4 }),
      );
      for (const mill of mills) {
        mill.on('error', () => undefined);
        // One goes on whatever its signal says, the other gives up.
        mill.job('stubborn', { concurrency: 2 }, (job) => counted(job.id, end.promise));
        mill.job('polite', { concurrency: 2 }, (job) => {
          const aborted = new Promise((_resolve, reject) => {
            job.signal.addEventListener('abort', () => reject(job.signal.reason as Error));
          });
          return counted(job.id, Promise.race([end.promise, aborted]));
        });
      }
      const names = ['stubborn', 'polite'].flatMap((name) =>
        Array.from({ length: INSTANCES * 2 }, () => name),
      );
      const [first] = mills;
      const ids = (await first!.enqueueMany(names.map((name) => ({ name })))).map(({ id }) => id);
      for (const mill of mills) await mill.start();
      await until('all run', () => ids.every((id) => running.get(id) === 1));
      outage.reach = reach;
      await until('every lease is lost', () => mills.every((mill) => !mill.isHealthy()));
      await until('every lease has ended by the store', async () =>
        (await store.instances.list()).instances.every(({ leftMs }) => leftMs < 0),
      );
      // A process that died during the outage, so that something is left to be recovered afterwards.
      outage.reach = 'up';
      const dead = anInstance();
      const registration = { tasks: [], policies: {}, host: 'h', pid: 1, leaseMs: 1 };
      await outage.store.instances.register({ ...dead, ...registration, names: ['dead'] });
      await outage.store.jobs.insert([aJob({ name: 'dead' })]);
      await outage.store.jobs.claim(aClaim(dead, { names: ['dead'] }));
      await until('all are back', () => mills.every((mill) => mill.isHealthy()));
      const isRecovered = async (): Promise<boolean> =>
        (await first!.jobs.find({ name: 'dead' })).items[0]?.failCount === 1;
      await until('a process that is really dead is found', isRecovered);
      expect(beside).toBe(0);
      end.open();
      const isDone = async (): Promise<boolean> =>
        (await first!.jobs.count({ name: ['stubborn', 'polite'], status: 'completed' })) === ids.length;
      await until('all are done', isDone);
      const { items } = await first!.jobs.find({ name: ['stubborn', 'polite'] });
      expect(items.filter(({ failCount }) => failCount > 0)).toEqual([]);
      const stubborn = items.filter(({ name }) => name === 'stubborn').map(({ id }) => starts.get(id));
      expect(stubborn).toEqual(stubborn.map(() => 1));
    },
  );

  it('leaves a lock to a holder whose function goes on, although its lease has ended', async () => {
    const store = await opened(open());
    const outage = new Outage(store);
    const [holder, other] = [aMill(outage.store), aMill(store)];
    holder.on('error', () => undefined);
    const [holds, end] = [gate(), gate()];
    const inside: string[] = [];
    const first = holder.withLock(
      'k',
      async ({ signal }) => {
        inside.push('first in');
        holds.open();
        await end.promise;
        inside.push(`first out, ${signal.aborted ? 'told' : 'not told'}`);
      },
      { lease: 500 },
    );
    first.catch(() => undefined);
    await holds.promise;
    outage.reach = 'down';
    const look = (): ReturnType<typeof store.locks.acquire> =>
      store.locks.acquire('k', { instanceId: 'eye', token: 'eye' }, 1, { patient: true });
    await until('its lease has ended', async () => isExpired(await look()));
    const second = other.withLock('k', () => void inside.push('second in'), { wait: '40s' });
    outage.reach = 'up';
    await until('it is renewed', async () => !isExpired(await look()));
    end.open();
    await expect(first).rejects.toMatchObject({ code: 'LEASE_LOST' });
    await second;
    expect(inside).toEqual(['first in', 'first out, told', 'second in']);
  });
});

const isExpired = (answer: LockAnswer): boolean => 'heldBy' in answer && answer.expired === true;
