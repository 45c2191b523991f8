import { describe, expect, it } from 'vitest';
import type {
  AuditPage,
  Count,
  Failures,
  Operation,
  Overview,
  SchedulePage,
  WorkDetail,
  WorkPage,
} from '../../src/dashboard/contract.js';
import { FatalError, type Tidemill } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import { StoreError } from '../../src/core/errors.js';
import { ORDERS } from '../../dashboard/src/filter.js';
import { aMill, gate, until } from '../support/mills.js';
import { aClient, eventsOf, type Client } from './client.js';

const refOf = (id: string): string => Buffer.from(id).toString('base64url');

async function ended(client: Client, { id }: Operation): Promise<Operation> {
  return until('the operation has ended', async () => {
    const now = await client.get<Operation>(`operations/${id}`);
    return now.state !== 'running' && now;
  });
}

/** Signals after the first batch of a removal, and waits before the next. */
function holding(mill: Tidemill, reached: () => void, go: Promise<void>): Tidemill {
  const removeMany = mill.jobs.removeMany.bind(mill.jobs);
  mill.jobs.removeMany = (filter, options) =>
    removeMany(filter, {
      ...options,
      onProgress: async (done) => {
        reached();
        await go;
        await options?.onProgress?.(done);
      },
    });
  return mill;
}

describe('a retry with a corrected payload', () => {
  const at = new Date('2026-11-17T08:00:00.000Z');
  const stored = {
    to: 'nobody',
    at,
    password: 'pw',
    list: [
      { n: 1, token: 'a' },
      { n: 2, token: 'b' },
    ],
  };
  const failedJob = async (mill: Tidemill): Promise<string> => {
    const { id } = await mill.enqueue('mail', stored, { delay: '1h' });
    await mill.jobs.cancel(id);
    return id;
  };
  const edit = (client: Client, id: string, data: unknown): ReturnType<Client['post']> =>
    client.post('act', { action: 'retry', kind: 'jobs', id: refOf(id), data });

  it('keeps what was not changed as it is stored, and has both versions in the audit log, redacted', async () => {
    const mill = aMill(memory());
    const id = await failedJob(mill);
    const client = aClient(mill);
    const { payload, editable } = await client.get<WorkDetail>(`work/jobs/${refOf(id)}`);
    expect(editable).toBe(true);
    const { status } = await edit(client, id, { ...(payload as object), to: 'ada', more: [1] });
    expect(status).toBe(200);
    const job = await mill.jobs.get(id);
    expect(job).toMatchObject({ status: 'pending', data: { ...stored, to: 'ada', more: [1] } });
    const [entry] = (await mill.audit.list()).items;
    expect(entry).toMatchObject({
      action: 'retry',
      target: `job ${id}, with a corrected payload`,
      outcome: 'retried',
      details: {
        before: { to: 'nobody', password: '[redacted]' },
        after: { to: 'ada', password: '[redacted]', more: [1] },
      },
    });
    expect((await client.get<WorkDetail>(`work/jobs/${refOf(id)}`)).editable).toBe(false);
    expect((await edit(client, id, {})).status).toBe(409);
  });

  it('gives no item of a list the hidden value of another', async () => {
    const mill = aMill(memory());
    const id = await failedJob(mill);
    const client = aClient(mill);
    const { payload } = await client.get<WorkDetail>(`work/jobs/${refOf(id)}`);
    const shown = payload as { readonly list: readonly object[] };
    const [first, second] = shown.list;
    for (const list of [[{ n: 3, token: '[redacted]' }], [first, second, { token: '[redacted]' }]]) {
      const refused = await edit(client, id, { ...shown, list });
      expect(refused).toMatchObject({ status: 400, body: { error: { code: 'bad_request' } } });
    }
    expect((await mill.jobs.get(id))?.status).toBe('cancelled');
    expect((await edit(client, id, { ...shown, list: [second] })).status).toBe(200);
    expect((await mill.jobs.get(id))?.data).toEqual({ ...stored, list: [{ n: 2, token: 'b' }] });
  });

  it('needs the rights payload and act, a job, and a body that is not too large', async () => {
    const mill = aMill(memory());
    const id = await failedJob(mill);
    const actor = aClient(mill, { authorize: () => ({ rights: ['view', 'act'], actor: 'eve' }) });
    expect((await edit(actor, id, {})).status).toBe(403);
    expect((await actor.get<WorkDetail>(`work/jobs/${refOf(id)}`)).editable).toBe(false);
    const client = aClient(mill);
    for (const body of [
      { action: 'cancel', kind: 'jobs' },
      { action: 'retry', kind: 'tasks' },
    ])
      expect((await client.post('act', { ...body, id: refOf(id), data: {} })).status).toBe(400);
    expect((await edit(client, id, 'x'.repeat(70_000))).status).toBe(413);
    expect((await mill.jobs.get(id))?.data).toEqual(stored);
  });
});

describe('dashboard API: reading', () => {
  it('the overview returns names with counts, instances, time series and health', async () => {
    const store = memory();
    const worker = aMill(store, { instanceId: 'worker' });
    worker.job('mail', () => undefined);
    await worker.start();
    const viewer = aMill(store);
    await viewer.enqueue('report', {}, { delay: '1h' });
    await viewer.jobs.pause('report');
    const client = aClient(viewer);
    const overview = await client.get<Overview>('overview?range=15m');
    expect(overview.names).toMatchObject([
      { kind: 'jobs', name: 'mail', instances: 1, paused: false },
      { kind: 'jobs', name: 'report', instances: 0, paused: true, counts: { pending: 1 } },
    ]);
    expect(overview.instances).toMatchObject([{ instanceId: 'worker', alive: true, names: ['mail'] }]);
    expect(overview.series.done).toHaveLength(15);
    expect(overview.health).toMatchObject({ ok: true, reasons: [] });
    expect(overview.planner).toMatchObject({ leader: null });
    expect((await client.get<Overview>('overview?range=24h&kind=jobs&name=mail')).series.done).toHaveLength(
      96,
    );
    expect((await client.ask('api/overview?range=1y')).status).toBe(400);
    await worker.stop();
    expect(await aClient(viewer).get('overview')).toMatchObject({ health: { ok: false } });
  });

  it('the overview is not well while a tenth of the work of the last minutes failed for good', async () => {
    const mill = aMill(memory(), { monitoring: { pushIntervalMs: 100 } });
    mill.job<{ bad: boolean }>('mail', ({ data }) => {
      if (data.bad) throw new FatalError('refused');
    });
    await mill.start();
    let ends = 0;
    const run = async (good: number, bad: number): Promise<Overview> => {
      ends += good + bad;
      const ran = [...Array<boolean>(good).fill(false), ...Array<boolean>(bad).fill(true)];
      await mill.enqueueMany(ran.map((one) => ({ name: 'mail', data: { bad: one } })));
      return until('all ends are counted', async () => {
        const seen = await aClient(mill).get<Overview>('overview?range=24h&kind=jobs&name=other');
        const [row] = seen.names;
        return (row?.done ?? 0) + (row?.failed ?? 0) === ends && seen;
      });
    };
    expect((await run(8, 1)).health).toMatchObject({ ok: true, reasons: [] });
    expect((await run(1, 0)).health).toMatchObject({
      ok: false,
      reasons: [
        '10 % of the work that ended in the last 15 minutes failed for good (1 of 10), 1 of them jobs mail',
      ],
    });
    expect((await run(1, 0)).health).toMatchObject({ ok: true, reasons: [] });
  });

  it('lists work by filter and cursor in both directions, and returns a full, redacted detail', async () => {
    const mill = aMill(memory());
    const jobs = await mill.enqueueMany(
      [1, 2, 3, 4, 5].map((n) => ({
        name: n < 4 ? 'mail' : 'push',
        data: { n, user: { id: `u${String(n)}` } },
        delay: n * 60_000,
      })),
    );
    const client = aClient(mill);
    const list = (query: string): Promise<WorkPage> => client.get<WorkPage>(`work?${query}`);
    expect((await list('name=mail')).items).toHaveLength(3);
    expect((await list('name=mail&name=push&status=pending&status=failed')).items).toHaveLength(5);
    expect((await list('field=user.id:u2')).items).toMatchObject([{ title: jobs[1]!.id }]);
    expect((await list('field=n:2')).items).toHaveLength(1);
    expect((await list('field=n:"2"')).items).toHaveLength(0);
    const soon = new Date(Date.now() + 150_000).toISOString();
    expect((await list(`time=dueAt&to=${encodeURIComponent(soon)}`)).items).toHaveLength(2);
    const first = await list('sort=dueAt&order=asc&limit=2');
    const second = await list(`sort=dueAt&order=asc&limit=2&cursor=${encodeURIComponent(first.next!)}`);
    const back = await list(`sort=dueAt&order=asc&limit=2&cursor=${encodeURIComponent(second.previous!)}`);
    expect(second.items.map(({ title }) => title)).toEqual([jobs[2]!.id, jobs[3]!.id]);
    expect(back.items).toEqual(first.items);

    mill.job('fail', async (job) => {
      job.log('trying', { password: 'hunter2', try: 1 });
      job.progress({ step: 'half', token: 'abc' });
      throw new FatalError('No login with password=hunter2 for "ada"');
    });
    await mill.start();
    const failed = await mill.enqueue('fail', { card: { number: 4111 }, nested: [{ Password: 'x' }] });
    await until('it has failed', async () => (await mill.jobs.get(failed.id))?.status === 'failed');
    const detail = await client.get<WorkDetail>(`work/jobs/${refOf(failed.id)}`);
    expect(detail).toMatchObject({
      status: 'failed',
      attempts: 1,
      why: [],
      actions: ['retry', 'remove'],
      timeline: [{ attempt: 1, status: 'failed', instanceId: mill.instanceId }],
      payload: { card: { number: 4111 }, nested: [{ Password: '[redacted]' }] },
      logs: [{ message: 'trying', fields: { password: '[redacted]', try: 1 } }],
      progress: { step: 'half', token: '[redacted]' },
      error: 'No login with password=[redacted] for "ada"',
    });
    expect(detail.timeline[0]!.error!.stack).toContain('api.test');
    expect(JSON.stringify(detail)).not.toContain('hunter2');
    const waiting = await client.get<WorkDetail>(`work/jobs/${refOf(jobs[0]!.id)}`);
    expect(waiting.why.map(({ code }) => code)).toEqual(['not-due', 'no-instance']);
    expect((await client.ask(`api/work/jobs/${refOf('nobody')}`)).status).toBe(404);
    expect((await client.ask('api/work/jobs/%00')).status).toBe(404);
    expect((await client.ask(`api/work/elephants/${refOf('x')}`)).status).toBe(404);
  });

  it('lists take every order that the page offers, and no kind is listed in another by default', async () => {
    const store = memory();
    const mill = aMill(store);
    mill.documents({ collection: 'reminders', onDocument: () => undefined });
    for (const hours of [2, 1, 3])
      store.collection('reminders').insert({ hours, sleepUntil: new Date(Date.now() + hours * 3_600_000) });
    const client = aClient(mill);
    for (const kind of ['jobs', 'tasks', 'documents'] as const) {
      const list = (sort: string): Promise<WorkPage> => client.get<WorkPage>(`work?kind=${kind}${sort}`);
      const orders = ORDERS[kind].map(([value]) => value.split(' '));
      const lists = await Promise.all(orders.map(([sort, order]) => list(`&sort=${sort!}&order=${order!}`)));
      expect((await list('')).items).toEqual(lists[0]!.items);
    }
  });

  it('refuses to filter by redacted fields, and a custom redact list replaces the default', async () => {
    const mill = aMill(memory());
    const job = await mill.enqueue('mail', { password: 'p', card: { number: 1 }, a: { token: 2 }, token: 3 });
    const client = aClient(mill);
    for (const path of ['password', 'Password', 'card.0.password', 'a.token', 'token.x'])
      expect((await client.ask(`api/work?field=${path}:1`)).status, path).toBe(403);
    const own = aClient(mill, { redact: ['card.number', '*.token'] });
    expect((await own.ask('api/work?field=password:p')).status).toBe(200);
    expect((await own.ask('api/work?field=card.number:1')).status).toBe(403);
    const { payload } = await own.get<WorkDetail>(`work/jobs/${refOf(job.id)}`);
    expect(payload).toEqual({
      password: 'p',
      card: { number: '[redacted]' },
      a: { token: '[redacted]' },
      token: 3,
    });
  });

  it('returns and manages schedules with their next ten runs, groups failures, and pages the audit log', async () => {
    const mill = aMill(memory());
    mill.job('fail', ({ data }) => Promise.reject(new FatalError(`No room for ${String(data)}`)));
    await mill.schedule('0 3 * * *', 'report', {}, { timezone: 'Europe/Prague' });
    await mill.start();
    await mill.enqueueMany([1, 2, 3].map((data) => ({ name: 'fail', data })));
    await until('all have failed', async () => (await mill.jobs.count({ status: 'failed' })) === 3);
    const client = aClient(mill);
    const { items, next } = await client.get<SchedulePage>('schedules');
    expect(items).toMatchObject([
      { name: 'report', key: 'report', timezone: 'Europe/Prague', paused: false },
    ]);
    expect([items[0]!.next.length, next]).toEqual([10, null]);
    const { groups } = await client.get<Failures>('failures?kind=jobs');
    expect(groups).toMatchObject([{ kind: 'jobs', name: 'fail', pattern: 'No room for …', count: 3 }]);
    const { items: found } = await client.get<WorkPage>(
      `work?error=${encodeURIComponent(groups[0]!.search)}`,
    );
    expect(found).toHaveLength(3);
    const { id } = items[0]!;
    expect(await client.post('schedules', { action: 'pause', id })).toMatchObject({
      body: { outcome: 'paused' },
    });
    expect(await client.get('schedules')).toMatchObject({ items: [{ paused: true, next: [] }] });
    expect(await client.post('schedules', { action: 'resume', id })).toMatchObject({
      body: { outcome: 'resumed' },
    });
    expect(await client.post('schedules', { action: 'run-now', id })).toMatchObject({
      body: { outcome: 'due' },
    });
    expect(await client.post('schedules', { action: 'remove', id })).toMatchObject({
      body: { outcome: 'removed' },
    });
    expect((await client.post('schedules', { action: 'pause', id })).status).toBe(404);
    expect((await client.post('schedules', { action: 'retry', id })).status).toBe(400);
    const audit = await client.get<AuditPage>('audit?limit=3');
    expect(audit.items[0]).toMatchObject({ actor: 'ada', action: 'retry', target: 'schedule report' });
    expect(audit.items[0]!.outcome).toContain('refused');
    expect(audit.items[2]).toMatchObject({ action: 'remove', outcome: 'removed' });
    expect((await client.get<AuditPage>(`audit?cursor=${audit.next!}`)).items).toHaveLength(3);
  });
});

describe('dashboard API: hostile input', () => {
  it.each([
    'status[$ne]=x',
    'status=anything',
    'kind=elephants',
    'field=$where:1',
    'field=a.$gt:1',
    'field=__proto__:1',
    'field=a.constructor.b:1',
    'field=:1',
    'field=novalue',
    'field=a:1&field=a:2',
    'name[$regex]=.*',
    'limit=0',
    'limit=1e3',
    'limit=1001',
    'sort=password',
    'order=sideways',
    'from=now',
    'from=2026-13-01',
    'time=leaseUntil',
    'cursor=rubbish',
    'unknown=1',
    `error=${'x'.repeat(501)}`,
    `cursor=${Buffer.from('{"field":"data","direction":1,"at":"2026-01-01","key":"x"}').toString('base64url')}`,
  ])('rejects the list query %s', async (query) => {
    const client = aClient(aMill(memory()));
    const response = await client.ask(`api/work?${query}`);
    expect(response.status).toBe(400);
    expect(((await response.json()) as { error: { code: string } }).error.code).toBe('bad_request');
  });

  it('compares field values literally: operators and expressions in them mean nothing', async () => {
    const mill = aMill(memory());
    await mill.enqueue('mail', { a: '{"$gt":""}', b: '/x/' });
    const client = aClient(mill);
    const found = async (field: string): Promise<number> =>
      (await client.get<WorkPage>(`work?field=${encodeURIComponent(field)}`)).items.length;
    expect(await found('a:{"$gt":""}')).toBe(1);
    expect(await found('b:/x/')).toBe(1);
    expect(await found('b:{"$ne":null}')).toBe(0);
  });

  it.each([
    ['act', { action: 'retry', kind: 'jobs', id: { $ne: '' } }],
    ['act', { action: ['retry'], kind: 'jobs', id: 'x' }],
    ['act', { action: 'drop', kind: 'jobs', id: 'x' }],
    ['act', { action: 'retry', kind: 'constructor', id: 'x' }],
    ['names', { action: 'reconcile', kind: 'jobs', name: 'x' }],
    ['names', { action: 'pause', kind: 'documents', name: 'x' }],
    ['count', { kind: 'jobs' }],
    ['count', { kind: 'jobs', query: '', ids: ['x'] }],
    ['count', { kind: 'jobs', query: { $gt: '' } }],
    ['count', { kind: 'jobs', ids: [1] }],
    ['count', { kind: 'jobs', query: 'field=$where:1' }],
    ['count', { kind: 'jobs', query: '', more: 1 }],
    ['actions', { action: 'retry', target: 'all' }],
    ['actions', { action: 'pause', target: { kind: 'jobs', query: '' } }],
    ['actions', { action: 'retry', target: { kind: 'jobs', query: '' }, asOf: '9999-01-01T00:00:00Z' }],
    ['actions', { action: 'remove', target: { kind: 'documents', query: '' } }],
    ['act', 'text'],
    ['act', [1]],
  ])('rejects a POST to %s with the body %j', async (path, body) => {
    const { status } = await aClient(aMill(memory())).post(path, body);
    expect([400, 404]).toContain(status);
  });

  it('names the known keys when it rejects a body with another one', async () => {
    const { body } = await aClient(aMill(memory())).post('count', { kind: 'jobs', id: 'x' });
    expect(body).toMatchObject({
      error: { message: 'Unknown key "id" in the body. Known keys: kind, ids, query.' },
    });
  });

  it('rejects a body that is too large with 413', async () => {
    const { status } = await aClient(aMill(memory())).post('act', { id: 'x'.repeat(100_000) });
    expect(status).toBe(413);
  });

  it('hides store errors from viewers and reports them to the host', async () => {
    const mill = aMill(memory());
    const told: unknown[] = [];
    const secret = 'connect ECONNREFUSED mongodb://root:pw@10.0.0.7';
    mill.jobs.find = () => Promise.reject(new StoreError(secret));
    mill.jobs.get = () => Promise.reject(new TypeError(secret));
    const client = aClient(mill, { onError: (error) => told.push(error) });
    const [list, detail] = await Promise.all([
      client.ask('api/work'),
      client.ask(`api/work/jobs/${refOf('x')}`),
    ]);
    expect([list.status, detail.status]).toEqual([503, 500]);
    expect((await list.text()) + (await detail.text())).not.toContain('10.0.0.7');
    expect(told).toHaveLength(2);
  });
});

describe('dashboard API: actions', () => {
  it('runs, retries, cancels and removes one job, and records each outcome in the audit log', async () => {
    const mill = aMill(memory());
    const client = aClient(mill);
    const job = await mill.enqueue('mail', {}, { delay: '1h' });
    const act = async (action: string): Promise<string> =>
      (await client.post<{ outcome: string }>('act', { action, kind: 'jobs', id: refOf(job.id) })).body
        .outcome;
    expect(await act('run-now')).toBe('rescheduled');
    expect(await act('retry')).toBe('unfinished');
    expect(await act('cancel')).toBe('cancelled');
    expect(await act('retry')).toBe('retried');
    expect(await act('remove')).toBe('removed');
    expect(await act('remove')).toBe('missing');
    expect(
      (await client.get<AuditPage>('audit')).items.map(({ action, outcome }) => `${action} ${outcome}`),
    ).toEqual([
      'remove missing',
      'remove removed',
      'retry retried',
      'cancel cancelled',
      'retry unfinished',
      'run-now rescheduled',
    ]);
  });

  it('a bulk action runs in batches and skips jobs that changed after they were counted', async () => {
    const mill = aMill(memory());
    const client = aClient(mill);
    const later = { delay: '1h' } as const;
    await mill.enqueueMany(Array.from({ length: 1_200 }, (_, n) => ({ name: 'mail', data: n, ...later })));
    await mill.enqueue('push', {}, later);
    const target = { kind: 'jobs', query: 'name=mail&sort=dueAt&limit=50' };
    const { body: count } = await client.post<Count>('count', { ...target, action: 'cancel' });
    expect(count).toMatchObject({ count: 1_200, capped: false });
    expect((await client.post<Count>('count', { ...target, action: 'retry' })).body.count).toBe(0);
    await until('time has passed', async () => (await mill.time()).toISOString() > count.asOf);
    const late = await mill.enqueue('mail', 'late', later);
    const { body: begun } = await client.post<Operation>('actions', {
      action: 'cancel',
      target,
      expected: count.count,
      asOf: count.asOf,
    });
    expect(begun).toMatchObject({ action: 'cancel', state: 'running' });
    // As seen from another process of the cluster.
    const other = aClient(mill);
    expect(await ended(other, begun)).toMatchObject({ state: 'done', done: 1_200 });
    expect((await mill.jobs.get(late.id))?.status).toBe('pending');
    expect(await mill.jobs.count({ status: 'cancelled' })).toBe(1_200);
    const [entry] = (await client.get<AuditPage>('audit')).items;
    expect(entry).toMatchObject({ actor: 'ada', action: 'cancel', target: 'jobs with name mail' });
    const again = { action: 'cancel', target: { kind: 'jobs', query: 'name=mail' }, expected: 0 };
    expect((await client.post('actions', again)).status).toBe(409);
  });

  it('a bulk action runs on selected ids, and another process can stop it between batches', async () => {
    const store = memory();
    const mill = aMill(store);
    const client = aClient(mill);
    const jobs = await mill.enqueueMany(
      Array.from({ length: 1_600 }, (_, n) => ({ name: 'mail', data: n, delay: '1h' })),
    );
    const ids = jobs.slice(0, 2).map(({ id }) => refOf(id));
    const { body: few } = await client.post<Operation>('actions', {
      action: 'remove',
      target: { kind: 'jobs', ids },
    });
    expect(await ended(client, few)).toMatchObject({ state: 'done', done: 2 });

    // Holds the first batch until the stop is in the store.
    const [reached, go] = [gate(), gate()];
    const busy = holding(aMill(store), reached.open, go.promise);
    const runner = aClient(busy);
    const { body: begun } = await runner.post<Operation>('actions', {
      action: 'remove',
      target: { kind: 'jobs', query: '' },
    });
    await reached.promise;
    expect((await client.post<Operation>(`operations/${begun.id}/stop`, {})).status).toBe(200);
    go.open();
    expect(await ended(client, begun)).toMatchObject({ state: 'stopped', done: 500 });
    expect((await client.ask('api/operations/nothing')).status).toBe(404);
    expect((await client.ask(`api/operations/${'0'.repeat(24)}`)).status).toBe(404);
  });
});

it('mill.stop() waits for the current batch of a bulk action and leaves the rest', async () => {
  const store = memory();
  const [reached, go] = [gate(), gate()];
  const mill = holding(aMill(store), reached.open, go.promise);
  const client = aClient(mill);
  await mill.enqueueMany(Array.from({ length: 1_200 }, (_, n) => ({ name: 'mail', data: n, delay: '1h' })));
  const { body: begun } = await client.post<Operation>('actions', {
    action: 'remove',
    target: { kind: 'jobs', query: '' },
  });
  await reached.promise;
  const stopping = mill.stop();
  go.open();
  await stopping;
  const other = aMill(store);
  expect(await aClient(other).get(`operations/${begun.id}`)).toMatchObject({ state: 'stopped', done: 500 });
  expect(await other.jobs.count()).toBe(700);
});

describe('dashboard API: shared queries and streams', () => {
  it('viewers of the same page share one query; a viewer with more rights gets a separate one', async () => {
    const mill = aMill(memory());
    let asked = 0;
    const find = mill.jobs.find.bind(mill.jobs);
    mill.jobs.find = (...given) => {
      asked += 1;
      return find(...given);
    };
    let rights: ('view' | 'payload' | 'act')[] = ['view'];
    const { ask } = aClient(mill, { authorize: () => rights });
    await Promise.all(
      Array.from({ length: 50 }, (_, n) =>
        ask(`api/work?${n % 2 === 0 ? 'kind=jobs&limit=50' : 'limit=50&kind=jobs'}`),
      ),
    );
    expect(asked).toBe(1);
    rights = ['view', 'payload'];
    await ask('api/work?kind=jobs');
    expect(asked).toBe(2);
  });

  it('rejects a stream that cannot begin, and sends a problem event when one fails later', async () => {
    const mill = aMill(memory());
    const client = aClient(mill);
    expect((await client.ask('api/live')).status).toBe(400);
    expect((await client.ask('api/live?path=work%3Fstatus%3Dnone')).status).toBe(400);
    expect((await client.ask('api/live?path=session')).status).toBe(404);
    expect((await client.ask('api/live?path=live')).status).toBe(404);
    const job = await mill.enqueue('mail', {}, { delay: '1h' });
    const events = eventsOf(await client.ask(`api/live?path=work/jobs/${refOf(job.id)}`));
    expect(await events.next()).toContain('"status":"pending"');
    await mill.jobs.remove(job.id);
    expect(await events.next()).toMatch(/^event: problem\ndata: .*not_found/u);
    await events.cancel();
    expect(client.dashboard.streams).toBe(0);
  });
});
