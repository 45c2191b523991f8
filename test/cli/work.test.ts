import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { Tidemill, type Finding, type Job } from '../../src/index.js';
import { openStore } from '../../src/mill/opening/open-store.js';
import { until } from '../support/mills.js';
import { freshUri, rawClient, rawPool } from '../support/stores.js';
import { linesOf, tidemill, type Ran, type TerminalOptions } from './terminal.js';

const pool = rawPool();
const client = rawClient(inject('mongoUri'));

interface Target {
  readonly name: string;
  readonly flags: readonly string[];
  readonly orders: string;
  readonly tenants: string;
  /** Creates order 7, which is paid, and tenant "ada", which is not due yet. */
  readonly fill: () => Promise<unknown>;
}

function mongodbTarget(): Target {
  const uri = freshUri();
  const db = client.db(new URL(uri).pathname.slice(1));
  return {
    name: 'MongoDB',
    flags: ['--store', uri],
    orders: 'orders',
    tenants: 'tenants',
    fill: async () => {
      await db.collection<{ _id: number }>('orders').insertOne({ _id: 7, status: 'paid' } as never);
      await db
        .collection<{ _id: string }>('tenants')
        .insertOne({ _id: 'ada', sleepUntil: new Date('2100-01-01'), interval: '@daily' } as never);
      await db.collection<{ _id: string }>('ended').insertOne({ _id: 'bob', sleepUntil: null } as never);
    },
  };
}

function postgresTarget(): Target {
  const schema = `test_${randomBytes(6).toString('hex')}`;
  return {
    name: 'PostgreSQL',
    flags: ['--store', inject('postgresUrl'), '--schema', schema],
    orders: `${schema}_shop.orders`,
    tenants: `${schema}_shop.tenants`,
    fill: () =>
      pool.query(`create schema ${schema}_shop;
        create table ${schema}_shop.orders (id integer primary key, status text);
        create table ${schema}_shop.tenants (id text primary key, sleep_until timestamptz, "interval" text);
        insert into ${schema}_shop.orders values (7, 'paid');
        create table ${schema}_shop.ended (id text primary key, sleep_until timestamptz, "interval" text);
        insert into ${schema}_shop.ended values ('bob', null, null);
        insert into ${schema}_shop.tenants values ('ada', '2100-01-01', '@daily');`),
  };
}

describe.each([
  ['MongoDB', mongodbTarget],
  ['PostgreSQL', postgresTarget],
] as const)('the command line on %s', (_name, make) => {
  let target: Target;
  let mill: Tidemill;
  let shippable = false;
  const run = (args: readonly string[], terminal?: TerminalOptions): Promise<Ran> =>
    tidemill([...args, ...target.flags], terminal);

  beforeAll(async () => {
    target = make();
    const [, url = '', , schema] = target.flags;
    await target.fill();
    mill = new Tidemill({
      store: await openStore(url, schema === undefined ? {} : { schema }),
      logger: false,
      instanceId: 'deployed',
    });
    mill.job<{ bad?: boolean }>(
      'send-email',
      { retryPolicy: { type: 'fixed', interval: '10ms', maxAttempts: 1 } },
      ({ data, log }) => {
        log('sending', { try: 1 });
        if (data.bad === true) throw new Error('mailbox 17 is full');
        return { sent: true };
      },
    );
    mill.job('nightly', () => undefined);
    await mill.reactiveTask({
      task: 'ship',
      collection: target.orders,
      filter: { status: 'paid' },
      debounce: 0,
      retryPolicy: { type: 'fixed', interval: '10ms', maxAttempts: 1 },
      handler: () => {
        if (!shippable) throw new Error('no courier');
      },
    });
    await mill.schedule('0 3 * * *', 'nightly');
    await mill.start();
    await mill.jobs.result(
      (await mill.enqueue('send-email', { to: 'ada' }, { id: `good-${target.name}` })).id,
    );
    for (const number of [1, 2, 3])
      await mill.enqueue('send-email', { bad: true }, { id: `bad-${String(number)}-${target.name}` });
    await until('all have ended', async () => (await mill.jobs.count({ status: 'failed' })) === 3);
    await until('the task has failed', async () => (await mill.tasks.count({ status: 'failed' })) === 1);
    await mill.enqueue('orphan', {}, { id: `orphan-${target.name}` });
  });
  afterAll(() => mill.stop());

  it('lists jobs by filter, as a table and as lines of JSON', async () => {
    const failed = await run(['ls', '--status', 'failed', '--name', 'send-email']);
    expect(failed.code).toBe(0);
    expect(failed.out).toMatch(/ID +NAME +STATUS +WHEN +NOTE\n/u);
    expect(failed.out.match(/mailbox 17 is full/gu)).toHaveLength(3);
    const all = linesOf<Job>(await run(['ls', '--json', '--asc', '--limit', '2']));
    expect(all).toHaveLength(2);
    const { err } = await run(['ls', '--json', '--limit', '2']);
    const cursor = /next cursor: (\S+)/u.exec(err)?.[1] ?? '';
    expect(linesOf<Job>(await run(['ls', '--json', '--limit', '2', '--cursor', cursor]))).toHaveLength(2);
  });

  it('keeps a table within the width of the terminal', async () => {
    const { out } = await run(['ls'], { columns: 80, env: { NO_COLOR: '1' } });
    expect(Math.max(...out.split('\n').map((line) => line.length))).toBeLessThanOrEqual(80);
  });

  it('lists tasks, schedules, documents and instances', async () => {
    expect((await run(['ls', 'tasks'])).out).toMatch(/ship +7 +failed +\S.* +no courier/u);
    expect((await run(['ls', 'schedules'])).out).toMatch(/nightly +0 3 \* \* \* +UTC +pending +in /u);
    expect((await run(['ls', '--documents', target.tenants])).out).toMatch(/ada +waiting +in .* +@daily/u);
    expect((await run(['ls', '--documents', target.tenants.replace('tenants', 'ended')])).err).toContain(
      'No documents.\n1 document there has no due time: to list them, pass --status failed --status parked.',
    );
    expect((await run(['ls', 'instances'])).out).toMatch(
      /deployed +alive +\S+ +leads .*nightly, send-email, ship/u,
    );
    expect((await run(['ls', '--name', 'nobody'])).err).toContain('No jobs.');
  });

  it('shows a job with payload, log and attempts, and why it is waiting', async () => {
    const good = await run(['show', `good-${target.name}`]);
    for (const part of [
      'send-email  completed',
      '"to": "ada"',
      '"sent": true',
      'sending  {"try":1}',
      'Attempts',
    ])
      expect(good.out).toContain(part);
    expect((await run(['show', `orphan-${target.name}`])).out).toContain(
      'No live instance runs the name "orphan"',
    );
    const { why } = JSON.parse((await run(['show', '--json', `orphan-${target.name}`])).out) as {
      why: { code: string }[];
    };
    expect(why.map(({ code }) => code)).toEqual(['no-instance']);
  });

  it('shows a task and a document by ids as people write them', async () => {
    const task = await run(['show', 'ship/7']);
    expect(task.out).toContain('ship/7  failed');
    expect(task.out).toContain('"status": "paid"');
    const document = await run(['show', 'ada', '--documents', target.tenants]);
    expect(document.out).toContain('ada  waiting');
    expect(document.out).toContain('@daily');
  });

  it.each([
    [['show', 'nothing'], 3, [null], 'No job and no reactive task has the id "nothing".'],
    [['retry', 'nothing'], 3, [{ id: 'nothing', outcome: 'missing' }], ''],
    [['cancel', 'nothing'], 3, [{ id: 'nothing', outcome: 'missing' }], ''],
    [['reconcile', 'nothing'], 3, [], 'no task "nothing" is known'],
    [['forget', 'nothing', '--yes'], 3, [], 'no task "nothing" is known'],
    [['resume', 'nothing', '--kind', 'schedule'], 3, [], 'no live schedule "nothing"'],
  ])(
    'with --json, %j that finds nothing exits with %i and prints only JSON on stdout',
    async (args, code, lines, message) => {
      const ran = await run([...args, '--json']);
      expect(ran.code).toBe(code);
      expect(linesOf(ran)).toEqual(lines);
      if (message === '') expect(ran.err).toBe('');
      else expect(ran.err).toContain(message);
    },
  );

  it('counts work by name and kind, and groups failures by message', async () => {
    const { out } = await run(['stats']);
    expect(out).toMatch(/send-email +job .* 3 /u);
    expect(out).toMatch(/ship +task /u);
    expect(out).toMatch(/3 +send-email +\S.* +mailbox … is full/u);
    expect(out).toContain('deployed plans');
  });

  it('retries jobs by filter only after confirmation, and reports the count', async () => {
    const filter = ['retry', '--name', 'send-email', '--error', 'mailbox'];
    expect(await run(filter)).toMatchObject({ code: 2, out: '' });
    const declined = await run(filter, { answers: ['n'] });
    expect(declined.questions[0]).toContain('Retry 3 jobs (named send-email, failed or cancelled');
    expect(declined.code).toBe(1);
    expect((await run([...filter, '--dry-run'])).out).toContain('Would retry 3 jobs');
    expect((await run([...filter, '--status', 'pending'])).code).toBe(2);
    expect((await run(['retry'])).err).toContain('Pass ids, a filter such as --name, or --all');
    expect(JSON.parse((await run([...filter, '--yes', '--json'])).out)).toEqual({ retried: 3, matching: 3 });
    expect((await mill.audit.list()).items[0]).toMatchObject({
      action: 'jobs.retryMany',
      outcome: '3 changed',
    });
  });

  it('retries one job by id, or the task of one document', async () => {
    await until('they have failed again', async () => (await mill.jobs.count({ status: 'failed' })) === 3);
    expect((await run(['retry', `bad-1-${target.name}`])).out).toContain('runs again');
    shippable = true;
    expect((await run(['retry', 'ship/7'])).out).toContain('ship/7 (ship): runs again');
    await until('it is shipped', async () => (await mill.tasks.get('ship', 7))?.status === 'completed');
    expect((await run(['cancel', 'ship/7'])).out).toContain('cannot be cancelled');
  });

  it('retries one job with a corrected payload, with both versions in the audit log', async () => {
    const id = `edited-${target.name}`;
    const stored = { at: new Date(0), bad: true, token: 'abc' };
    await mill.enqueue('send-email', stored, { id });
    await until('it has failed', async () => (await mill.jobs.get(id))?.status === 'failed');
    const data = '{"at":"1970-01-01T00:00:00.000Z","bad":false,"token":"def"}';
    expect((await run(['retry', id, 'other', '--data', data])).err).toContain('--data is for one job');
    expect((await run(['retry', '--all', '--data', data])).err).toContain('--data is for one job');
    expect((await run(['retry', id, '--data', '{'])).err).toContain('--data must be JSON');
    expect((await run(['retry', id, '--data', '@nowhere'])).err).toContain('cannot read the file "nowhere"');
    expect(await run(['retry', id, '--data', data])).toMatchObject({
      out: expect.stringContaining('runs again') as string,
      err: "--data is checked by no schema here; if it does not fit the job's, its attempts fail.\n",
    });
    await mill.jobs.result(id);
    expect((await mill.jobs.get(id))?.data).toEqual({ at: new Date(0), bad: false, token: 'def' });
    expect((await mill.audit.list()).items[0]).toMatchObject({
      action: 'jobs.retry',
      target: `send-email ${id}, with a corrected payload`,
      outcome: 'retried',
      details: {
        before: { bad: true, token: '[redacted]' },
        after: { bad: false, token: '[redacted]' },
      },
    });
  });

  it('names the keys that a corrected payload no longer has', async () => {
    const id = `shorter-${target.name}`;
    await mill.enqueue('send-email', { bad: true, to: 'ada', subject: 'Hi' }, { id });
    await until('it has failed', async () => (await mill.jobs.get(id))?.status === 'failed');
    expect((await run(['show', id])).out).toMatch(/^failed +1 time$/mu);
    const { code, out, err } = await run(['retry', id, '--data', '{"bad":false}', '--json']);
    expect({ code, outcome: (JSON.parse(out) as { outcome: string }).outcome }).toEqual({
      code: 0,
      outcome: 'retried',
    });
    expect(err).toBe(
      "--data is checked by no schema here; if it does not fit the job's, its attempts fail.\n" +
        '--data replaced the whole payload, which no longer has: to, subject.\n',
    );
    await mill.jobs.result(id);
  });

  it('cancels pending jobs by filter', async () => {
    const { code, out } = await run(['cancel', '--name', 'orphan'], { answers: ['yes'] });
    expect({ code, out }).toEqual({ code: 0, out: 'Cancelled 1 job.\n' });
    expect((await mill.jobs.get(`orphan-${target.name}`))?.status).toBe('cancelled');
  });

  it('pauses and resumes jobs, tasks and schedules by name', async () => {
    expect((await run(['pause', 'send-email'])).out).toContain('Jobs "send-email" are paused');
    expect((await run(['pause', 'ship'])).out).toContain('Reactive tasks "ship" are paused');
    await run(['pause', 'nightly', '--kind', 'schedule']);
    expect((await mill.schedules.get('nightly'))?.paused).toBe(true);
    const { findings } = JSON.parse((await run(['doctor', '--json'])).out) as { findings: Finding[] };
    expect(findings.find(({ check }) => check === 'paused')?.fix).toBe('tidemill resume send-email');
    for (const args of [['send-email'], ['ship'], ['nightly', '--kind', 'schedule']])
      expect((await run(['resume', ...args])).code).toBe(0);
    expect((await mill.schedules.get('nightly'))?.paused).toBe(false);
  });

  it('pauses a name that nothing has, and says on stderr which one may be meant', async () => {
    const paused = await run(['pause', 'send-emial']);
    expect(paused.code).toBe(0);
    expect(paused.err).toContain(
      'No job, task or instance has the name "send-emial". Did you mean "send-email"?',
    );
    expect((await run(['resume', 'send-emial'])).code).toBe(0);
  });

  it('takes an argument after -- as a name even if it looks like an option', async () => {
    const name = '--store=memory:';
    const paused = await tidemill(['pause', ...target.flags, '--', name]);
    expect(paused.out).toContain(`tidemill resume -- '${name}'`);
    expect(await mill.jobs.paused()).toContain(name);
    expect((await tidemill(['resume', ...target.flags, '--', name])).code).toBe(0);
    expect(await mill.jobs.paused()).not.toContain(name);
    const cancelled = await tidemill(['cancel', ...target.flags, '--name', name], { answers: ['yes'] });
    expect(cancelled.err).not.toContain('error:');
  });

  it('enqueues a job, waits for its result, and fails if the job fails', async () => {
    const good = await run(['run', 'send-email', '--data', '{"to":"grace"}', '--wait']);
    expect(good.code, good.err).toBe(0);
    expect(good.out).toContain('"sent": true');
    const bad = await run(['run', 'send-email', '--data', '{"bad":true}', '--wait', '1m']);
    expect(bad.err).toContain('mailbox 17 is full');
    expect(bad.code).toBe(1);
    expect((await run(['run', 'send-email', '--data', '{'])).err).toContain('--data must be JSON');
    expect((await run(['run', 'nobody-runs-it'])).err).toContain('No live instance runs "nobody-runs-it"');
    expect((await run(['run', 'ship'])).err).toContain('tidemill reconcile ship');
  });

  it('runs a schedule or a document now', async () => {
    expect((await run(['run', 'nightly'])).out).toContain('One run of the schedule "nightly"');
    expect((await run(['run', 'ada', '--documents', target.tenants])).out).toContain('is due now');
    expect((await run(['ls', '--documents', target.tenants])).out).toMatch(/ada +due/u);
    const missing = await run(['run', 'nobody', '--documents', target.tenants, '--json']);
    expect(missing.code).toBe(3);
    expect(JSON.parse(missing.out)).toMatchObject({ id: 'nobody', outcome: 'missing' });
  });

  it('reconciles a task and waits until it is done', async () => {
    const { code, out } = await run(['reconcile', 'ship']);
    expect(out).toMatch(/Reconciled 1 task: ship, in /u);
    expect(code).toBe(0);
  });

  it('forgets a task that left the code, after asking, and refuses one that a live instance runs', async () => {
    const refused = await run(['forget', 'ship', '--yes']);
    expect(refused).toMatchObject({
      code: 2,
      err: expect.stringContaining('live instances run the task "ship": deployed') as string,
    });
    const [, url = '', , schema] = target.flags;
    const before = new Tidemill({
      store: await openStore(url, schema === undefined ? {} : { schema }),
      logger: false,
    });
    await before.reactiveTask({ task: 'left', collection: target.orders, handler: () => undefined });
    await before.start();
    await until('it was planned', async () => (await mill.tasks.count({ task: 'left' })) === 1);
    await before.stop();
    expect((await run(['forget', 'left'])).err).toContain('pass --yes');
    expect((await run(['forget', 'left'], { answers: ['no'] })).err).toContain('Nothing was changed.');
    const forgotten = await run(['forget', 'left'], { answers: ['yes'] });
    expect(forgotten.out).toContain('Forgot "left": 1 record deleted.');
    expect((await mill.audit.list()).items[0]).toMatchObject({
      action: 'tasks.forget',
      target: 'left',
      outcome: 'forgotten, 1 record deleted',
    });
    expect((await run(['forget', 'left', '--yes'])).code).toBe(3);
  });

  it('says what to check if a store has never been used, and not once it has a job', async () => {
    const [, url = ''] = target.flags;
    const flags =
      target.name === 'MongoDB'
        ? ['--store', freshUri()]
        : ['--store', url, '--schema', `unused_${randomBytes(4).toString('hex')}`];
    const [, place = '', , schema] = flags;
    const other = new Tidemill({
      store: await openStore(place, schema === undefined ? {} : { schema }),
      logger: false,
    });
    const hint = /has no jobs at all.*check the database in the URL/u;
    expect(await other.jobs.count()).toBe(0);
    expect((await tidemill(['ls', ...flags])).err).toMatch(hint);
    await other.enqueue('mail', {}, { delay: '1h' });
    const filtered = await tidemill(['ls', '--status', 'failed', ...flags]);
    expect(filtered.err).toContain('No jobs.');
    expect(filtered.err).not.toMatch(hint);
    await other.stop();
  });

  it('shows the log of a job with the fields of each line', async () => {
    const [, url = '', , schema] = target.flags;
    const worker = new Tidemill({
      store: await openStore(url, schema === undefined ? {} : { schema }),
      logger: false,
    });
    worker.job('logs', ({ log }) => {
      log('sent', { to: 'ada@example.com', tries: [1, 2] });
      log('done');
    });
    await worker.start();
    const { id } = await worker.enqueue('logs', {});
    await worker.jobs.result(id);
    await worker.stop();
    const { out } = await run(['show', id]);
    expect(out).toMatch(/^ *\d{4}-\S+Z {2}sent {2}\{"to":"ada@example\.com","tries":\[1,2\]\}$/mu);
    expect(out).toMatch(/^ *\d{4}-\S+Z {2}done$/mu);
  });

  it('creates nothing in a store that it only reads', async () => {
    const [, url = ''] = target.flags;
    const empty =
      target.name === 'MongoDB'
        ? ['--store', freshUri()]
        : ['--store', url, '--schema', `absent_${randomBytes(4).toString('hex')}`];
    const { code, err } = await tidemill(['ls', ...empty]);
    expect(err).toMatch(/check the database in the URL/iu);
    if (target.name === 'MongoDB')
      expect(await client.db(new URL(empty[1]!).pathname.slice(1)).listCollections().toArray()).toEqual([]);
    else {
      expect(err).toContain('is at version 0');
      expect(err).not.toContain('migrationScript');
      expect(code).toBe(1);
      expect((await pool.query('select from pg_namespace where nspname = $1', [empty[3]])).rows).toEqual([]);
    }
  });
});
