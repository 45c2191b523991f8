import { LeaseLostError } from '../../../core/errors.js';
import {
  leaseOf,
  leasesOf,
  type InstanceStore,
  type Leases,
  type Registration,
} from '../../../store/port.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import {
  aClaim,
  aJob,
  aRegistration,
  aRunningJob,
  anInstance,
  done,
  gate,
  once,
  present,
  until,
} from '../fixtures.js';

const registration = (fields: Partial<Registration> = {}): Registration =>
  aRegistration({ policies: { 'work.$x': { type: 'fixed', interval: 5 } }, ...fields });

export const instances: Chapter = chapter('instances', [
  fact('refuses a second live process with the same instanceId, and names the first', async ({ opened }) => {
    const { instances } = await opened();
    expect(await instances.register(registration({ instanceId: 'same' }))).toEqual({});
    const second = registration({ instanceId: 'same', host: 'there', pid: 2 });
    const { refusedBy } = await instances.register(second);
    expect(refusedBy).toMatchObject({ host: 'here', pid: 1, expired: false });
    expect((await instances.register(second, refusedBy?.life)).refusedBy).toMatchObject({ expired: false });
  }),

  fact(
    'takes over the instanceId of an expired process only on request, and only from the expected life',
    async ({ opened }) => {
      const { instances } = await opened();
      const old = registration({ instanceId: 'same', leaseMs: 1 });
      await instances.register(old);
      await until(
        'the lease has ended',
        async () => ((await instances.list()).instances[0]?.leftMs ?? 0) < 0,
      );
      const next = registration({ instanceId: 'same' });
      for (const takeOver of [undefined, 'another life']) {
        const { refusedBy } = await instances.register(next, takeOver);
        expect(refusedBy).toEqual({ life: old.life, host: 'here', pid: 1, expired: true });
      }
      expect(await instances.renew({ ...old, leaseMs: -1 })).toBe('renewed');
      expect(await instances.register(next, old.life)).toEqual({});
      expect(await instances.renew(old)).toBe('lost');
    },
  ),

  fact('fences an instance only after its lease has ended, and for good', async ({ opened }) => {
    const { instances } = await opened();
    const [alive, dead] = [registration(), registration({ leaseMs: 1 })];
    await instances.register(alive);
    await instances.register(dead);
    expect(await instances.fence(alive)).toBeUndefined();
    expect(await instances.renew(alive)).toBe('renewed');
    const fenced = await until('it is fenced', () => instances.fence(dead));
    expect(fenced.policies).toEqual(dead.policies);
    expect(await instances.renew(dead)).toBe('lost');
    expect(await instances.fence(dead)).toBeDefined();
    await instances.bury(dead);
    expect((await instances.list()).instances.map((instance) => instance.life)).toEqual([alive.life]);
  }),

  fact('reads leases without the names that instances run', async ({ opened }) => {
    const { instances } = await opened();
    const task = { task: 't', definition: 'd', trigger: 'x', version: 1 };
    for (const fields of [{}, { names: ['b', 'a'] }, { names: ['a', 'b'], tasks: [task] }, { leaseMs: 1 }])
      await instances.register(registration(fields));
    await until('one lease has ended', async () =>
      (await instances.list()).instances.some(({ leftMs }) => leftMs < 0),
    );
    if (instances.leases === undefined) return;
    const seconds = ({ instances: all, leader }: Leases): unknown => ({
      leader,
      instances: all
        .map((one) => ({ ...one, leftMs: Math.sign(one.leftMs) }))
        .sort((a, b) => (a.life < b.life ? -1 : 1)),
    });
    const read = await instances.leases();
    expect(seconds(read)).toEqual(seconds(leasesOf(await instances.list())));
    expect(Math.abs(read.now.getTime() - Date.now())).toBeLessThan(5_000);
    const names = new Set(read.instances.map(({ runs }) => runs?.jobs));
    expect(names.size).toBe(2);
  }),

  fact('finds only jobs that are held without a valid lease', async ({ opened }) => {
    const store = await opened();
    const [known, unknown] = [anInstance(), anInstance()];
    await store.jobs.insert([aJob({ name: 'a' }), aJob({ name: 'b' })]);
    await store.jobs.claim(aClaim(known, { names: ['a'] }));
    await store.jobs.claim(aClaim(unknown, { names: ['b'], heartbeatMs: 1 }));
    const query = { lives: [known], legacyAfterMs: 90_000, limit: 10 };
    expect(await store.jobs.strays({ ...query, olderThanMs: 60_000 })).toEqual([]);
    const found = await until('the claim is old enough', async () => {
      const strays = await store.jobs.strays({ ...query, olderThanMs: 5 });
      return strays.length > 0 && strays;
    });
    expect(found.map((job) => job.name)).toEqual(['b']);
  }),

  fact(
    'lists the jobs that one life of an instance holds, and none of its other lives',
    async ({ opened }) => {
      const store = await opened();
      const [first, second] = [anInstance(), { ...anInstance(), instanceId: 'worker-again' }];
      const earlier = { ...first, instanceId: 'worker-again' };
      await store.jobs.insert([aJob({ name: 'a' }), aJob({ name: 'b' })]);
      await store.jobs.claim(aClaim(earlier, { names: ['a'] }));
      await store.jobs.claim(aClaim(second, { names: ['b'] }));
      expect((await store.jobs.heldBy(earlier, 10)).map((job) => job.name)).toEqual(['a']);
      expect((await store.jobs.heldBy(second, 10)).map((job) => job.name)).toEqual(['b']);
    },
  ),
]);

export const leases: Chapter = chapter('leases', [
  fact(
    'refuses the instanceId of a disconnected process that renews its lease in time',
    async ({ aMill, opened }) => {
      const store = await opened();
      const cutOff = registration({ instanceId: 'same', leaseMs: -1 });
      await store.instances.register(cutOff);
      let looks = 0;
      const instances = new Proxy(store.instances, {
        get: (target, key) => {
          if (key !== 'register') return Reflect.get(target, key, target) as unknown;
          return async (...given: Parameters<InstanceStore['register']>) => {
            const answer = await target.register(...given);
            // It comes back after the second process has seen its lease expired.
            if ((looks += 1) === 2)
              expect(await target.renew({ ...cutOff, leaseMs: 60_000 })).toBe('renewed');
            return answer;
          };
        },
      });
      const front = new Proxy(store, {
        get: (target, key) => {
          const value: unknown = key === 'instances' ? instances : Reflect.get(target, key, target);
          return typeof value === 'function' ? (value.bind(target) as unknown) : value;
        },
      });
      const mill = aMill({ store: front, leaseDuration: 1_000, instanceId: 'same' });
      mill.job('x', () => undefined);
      await expect(mill.start()).rejects.toMatchObject({ code: 'INSTANCE_ID_TAKEN' });
      expect(looks).toBeGreaterThanOrEqual(3);
      expect(await store.instances.renew(cutOff)).toBe('renewed');
    },
  ),

  fact(
    'starts under the instanceId of a dead process one lease after its last renewal',
    async ({ aMill, opened }) => {
      const store = await opened();
      const dead = registration({ instanceId: 'same', leaseMs: -1 });
      await store.instances.register(dead);
      const mill = aMill({ leaseDuration: 500, instanceId: 'same' });
      mill.job('x', () => undefined);
      const began = performance.now();
      await mill.start();
      expect(performance.now() - began).toBeGreaterThanOrEqual(400);
      expect(mill.isHealthy()).toBe(true);
      expect(await store.instances.renew(dead)).toBe('lost');
    },
  ),

  fact(
    'reclaims the jobs of a dead instance, and counts the attempt as crashed',
    async ({ aMill, opened }) => {
      const store = await opened();
      const dead = registration({ leaseMs: 1 });
      await store.instances.register(dead);
      await store.jobs.insert([aJob({ name: 'work', data: 7 })]);
      await store.jobs.claim(aClaim(dead));
      const mill = aMill({ leaseDuration: 500 });
      const recovered = gate<{ count: number }>();
      mill.on('stale:recovered', recovered.open);
      mill.job<number>('work', (job) => ({ data: job.data, attempt: job.attempt }));
      await mill.start();
      expect(await recovered.promise).toMatchObject({ count: 1 });
      const { items } = await mill.jobs.find({ name: 'work' });
      const [job] = items;
      expect(await mill.jobs.result(job?.id ?? '')).toEqual({ data: 7, attempt: 2 });
      const after = await mill.jobs.get(job?.id ?? '');
      expect(after).toMatchObject({ failCount: 1, status: 'completed' });
      // A slow machine lets the mill's own short lease end before the run begins: then it hands the job back first.
      const outcomes = after?.history?.map((entry) => entry.status).filter((status) => status !== 'released');
      expect(outcomes).toEqual(['crashed', 'completed']);
      await until(
        'the dead instance is buried',
        async () => (await store.instances.list()).instances.length === 1,
      );
    },
  ),

  fact('fails a job that kills its process on every attempt', async ({ aMill, opened }) => {
    const store = await opened();
    await store.jobs.insert([aJob({ name: 'poison' })]);
    const mill = aMill({ leaseDuration: 500 });
    mill.job('other', () => undefined);
    await mill.start();
    const policies = { poison: { type: 'fixed', interval: 0, maxAttempts: 3 } };
    for (let crash = 1; crash <= 3; crash += 1) {
      const victim = registration({ names: ['poison'], policies });
      await store.instances.register(victim);
      const request = aClaim(victim, { names: ['poison'] });
      const job = await until('it is claimed', async () => (await store.jobs.claim(request)).jobs[0]);
      await store.jobs.begin(leaseOf(job));
      await store.instances.renew({ ...victim, leaseMs: -1 });
      await until('it is handed on', async () => (await store.jobs.get(job.id))?.status !== 'processing');
      expect(await store.jobs.get(job.id)).toMatchObject({
        failCount: crash,
        status: crash < 3 ? 'pending' : 'failed',
      });
    }
  }),

  fact(
    'does not count a second crash for a reclaimed job that had not begun again',
    async ({ aMill, opened }) => {
      const store = await opened();
      await store.jobs.insert([aJob({ name: 'neighbour' })]);
      const mill = aMill({ leaseDuration: 500 });
      mill.job('other', () => undefined);
      await mill.start();
      for (let crash = 1; crash <= 2; crash += 1) {
        const dead = registration({ leaseMs: 1, names: ['neighbour'] });
        await store.instances.register(dead);
        const job = await until(
          'it is claimed',
          async () => (await store.jobs.claim(aClaim(dead, { names: ['neighbour'] }))).jobs[0],
        );
        await until('it is handed on', async () => (await store.jobs.get(job.id))?.status !== 'processing');
        expect(await store.jobs.get(job.id)).toMatchObject({ failCount: 1, status: 'pending' });
      }
    },
  ),

  fact(
    'fails a job with one attempt after a crash only if its handler had begun',
    async ({ aMill, opened }) => {
      const store = await opened();
      const dead = registration({ leaseMs: 1, policies: { work: once } });
      await store.instances.register(dead);
      const own = { ownId: true, name: 'work' } as const;
      await store.jobs.insert([aJob({ ...own, id: 'begun' }), aJob({ ...own, id: 'waiting' })]);
      const claimed = (await store.jobs.claim(aClaim(dead))).jobs;
      const begun = claimed.find(({ id }) => id === 'begun');
      expect(await store.jobs.begin(leaseOf(present(begun)))).toBe('begun');
      const mill = aMill({ leaseDuration: 500 });
      const ran: string[] = [];
      mill.job('work', { retryPolicy: once }, (job) => void ran.push(job.id));
      await mill.start();
      await expect(mill.jobs.result('begun')).rejects.toMatchObject({ code: 'JOB_FAILED' });
      await mill.jobs.result('waiting');
      expect(ran).toEqual(['waiting']);
      expect(await mill.jobs.get('begun')).toMatchObject({ status: 'failed', failCount: 1 });
      expect(await mill.jobs.get('waiting')).toMatchObject({ status: 'completed', failCount: 0 });
    },
  ),

  fact('records the start of a job with one attempt before its handler runs', async ({ aMill, opened }) => {
    const store = await opened();
    const mill = aMill();
    const seen = gate<unknown>();
    mill.job('work', { retryPolicy: once }, async (job) => {
      const record = await store.jobs.get(job.id);
      seen.open(record?.startedToken !== undefined && record.startedToken === record.leaseToken);
    });
    await mill.start();
    await mill.enqueue('work');
    expect(await seen.promise).toBe(true);
  }),

  fact('leaves stale jobs alone if recoverStaleJobs is off', async ({ aMill, opened }) => {
    const store = await opened();
    const dead = registration({ leaseMs: 1 });
    await store.instances.register(dead);
    await store.jobs.insert([aJob({ name: 'work' })]);
    const [job] = (await store.jobs.claim(aClaim(dead))).jobs;
    const mill = aMill({ leaseDuration: 500, recoverStaleJobs: false });
    const seen = gate();
    mill.job('work', () => undefined);
    mill.job('probe', () => seen.open());
    await mill.start();
    await mill.enqueue('probe', {}, { delay: 1_200 });
    await seen.promise;
    expect(await mill.jobs.get(job?.id ?? '')).toMatchObject({ status: 'processing' });
  }),

  fact(
    'aborts the handlers of a fenced instance, refuses their outcomes, and continues under a new life',
    async ({ aMill, opened }) => {
      const store = await opened();
      const mill = aMill({ leaseDuration: 6_000, instanceId: 'fenced-one' });
      const [running, aborted, handedOn, lost] = [
        gate(),
        gate<unknown>(),
        gate(),
        gate<{ reason: string }>(),
      ];
      mill.on('lease:lost', lost.open);
      mill.on('stale:recovered', () => handedOn.open());
      let runs = 0;
      mill.job('slow', async (job) => {
        runs += 1;
        if (runs > 1) return 'second';
        running.open();
        await new Promise((resolve) => job.signal.addEventListener('abort', resolve));
        aborted.open(job.signal.reason);
        await handedOn.promise;
        return 'first';
      });
      await mill.start();
      const job = await mill.enqueue('slow', {});
      await running.promise;
      // Somebody else saw the lease end: here the clock is helped along by ending it in the store.
      const { instances } = await store.instances.list();
      const self = instances.find((instance) => instance.instanceId === 'fenced-one');
      if (self === undefined) throw new Error('not registered');
      await store.instances.renew({ ...registration(), ...self, names: ['slow'], policies: {}, leaseMs: -1 });
      expect(await store.instances.fence(self)).toBeDefined();
      expect(await aborted.promise).toBeInstanceOf(LeaseLostError);
      expect((await lost.promise).reason).toContain('took it over');
      expect(await mill.jobs.result(job.id)).toBe('second');
      expect(mill.isHealthy()).toBe(true);
    },
  ),

  fact('renews the lease of a long job, so that no other instance runs it', async ({ aMill }) => {
    // No rest of a busy machine may be as long as a lease.
    const first = aMill({ leaseDuration: 2_000 });
    const second = aMill({ leaseDuration: 2_000 });
    let runs = 0;
    const handler = async (): Promise<void> => {
      runs += 1;
      await new Promise((resolve) => setTimeout(resolve, 4_500));
    };
    first.job('long', handler);
    second.job('long', handler);
    await Promise.all([first.start(), second.start()]);
    const job = await first.enqueue('long', {});
    await first.jobs.result(job.id);
    expect(runs).toBe(1);
    expect(await first.jobs.get(job.id)).toMatchObject({ failCount: 0 });
  }),

  fact(
    'removes a dead instance that ran reactive tasks and held none',
    ['reactive'],
    async ({ aMill, opened }) => {
      const store = await opened();
      const tasks = [{ task: 'sync', definition: 'd', trigger: 't', version: 1 }];
      const dead = registration({ names: [], tasks, leaseMs: 1 });
      await store.instances.register(dead);
      const mill = aMill({ leaseDuration: 500 });
      mill.job('x', () => undefined);
      await mill.start();
      await until('it is buried', async () => {
        const { instances } = await store.instances.list();
        return instances.every(({ life }) => life !== dead.life);
      });
    },
  ),

  fact('reports a settlement that was refused because its job was reclaimed', async ({ aMill, opened }) => {
    const store = await opened();
    const mill = aMill();
    const lost = gate<{ jobs: readonly { id: string }[] }>();
    mill.on('lease:lost', lost.open);
    const { job, finish } = await aRunningJob(mill);
    const record = await store.jobs.get(job.id);
    if (record === undefined) throw new Error('gone');
    await store.jobs.settle([
      done(record, { status: 'failed', set: { failReason: 'reclaimed' }, by: 'reclaimer' }),
    ]);
    finish.open();
    expect((await lost.promise).jobs.map(({ id }) => id)).toEqual([job.id]);
    expect(await mill.jobs.get(job.id)).toMatchObject({ status: 'failed', failReason: 'reclaimed' });
  }),
]);
