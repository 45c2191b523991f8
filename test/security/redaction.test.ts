import { describe, expect, it } from 'vitest';
import { embedded } from '../../src/embedded/index.js';

import type {
  Failures,
  Overview,
  Right,
  ScheduleRow,
  WorkDetail,
  WorkItem,
  WorkPage,
} from '../../src/dashboard/contract.js';
import { Redactor } from '../../src/dashboard/redaction/redact.js';
import { SECRETS, SecretNames } from '../../src/dashboard/redaction/secret-names.js';
import { FatalError } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import { aClient } from '../dashboard/client.js';
import { aMill, until } from '../support/mills.js';
import { newEmbedded } from '../support/stores.js';

const as = (...rights: Right[]) => ({ authorize: () => ({ rights, actor: 'ada' }) });
const redactor = new Redactor(SECRETS);

/** A started mill with tasks and documents in tables whose keys are secrets; `tenant` is the rest of the only tenant's row. */
async function withSecretKeys(tenant: string) {
  const database = await newEmbedded();
  await database.exec(`create table sessions (token text primary key, status text);
    insert into sessions values ('tok-live-ABC', 'open'), ('tok-live-DEF', 'open');
    create table tenants (token text primary key, sleep_until timestamptz, "interval" text);
    insert into tenants values ('tok-live-GHI', ${tenant})`);
  const mill = aMill(embedded({ database }));
  await mill.reactiveTask({
    task: 'expire',
    collection: 'sessions',
    debounce: '1h',
    handler: () => undefined,
  });
  mill.documents({ collection: 'tenants', onDocument: () => undefined });
  await mill.start();
  return { mill, database };
}

describe('redaction', () => {
  it.each([
    ['login failed: password=Tr0ub4dor&3 for bob', 'login failed: password=[redacted] for bob'],
    [
      'config {"data":"{\\"password\\":\\"nested\\"}"}',
      'config {"data":"{\\"password\\":\\"[redacted]\\"}"}',
    ],
    [
      String.raw`{"a":"{\"b\":\"{\\\"password\\\":\\\"deep\\\",\\\"c\\\":1}\"}"}`,
      String.raw`{"a":"{\"b\":\"{\\\"password\\\":\\\"[redacted]\\\",\\\"c\\\":1}\"}"}`,
    ],
    [
      'connect ECONNREFUSED postgres://svc:url-pass@db/app',
      'connect ECONNREFUSED postgres://[redacted]@db/app',
    ],
    [
      'see https://u:p@h/x?access_token=1&page=2',
      'see https://[redacted]@h/x?access_token=[redacted]&page=2',
    ],
    ['db_password=a client_secret=b pwd=c', 'db_password=[redacted] client_secret=[redacted] pwd=[redacted]'],
    ['Authorization: Bearer eyJabc.def.ghi', 'Authorization: [redacted]'],
    ['authorization: Digest username="a", response="r"\nnext', 'authorization: [redacted]\nnext'],
    ['cookie: sid=abc; csrf=def', 'cookie: [redacted]'],
    ['set-cookie: sid=abc', 'set-cookie: [redacted]'],
    ['x-api-key: k-1234', 'x-api-key: [redacted]'],
    ['apikey=k-777 api-key=k-888', 'apikey=[redacted] api-key=[redacted]'],
    ['password => "arrow"', 'password => "[redacted]"'],
    ["password: 'it\\'s'", "password: '[redacted]'"],
    ['PASSWORD="multi\nline"', 'PASSWORD="[redacted]"'],
    ['--password hunter4', '--password [redacted]'],
    ['password[]=arr1', 'password[]=[redacted]'],
    ['user[password]=x&page=2', 'user[password]=[redacted]&page=2'],
    ['password%3Dencoded', 'password%3D[redacted]'],
    ['token = [ "t1", "t2" ] left', 'token = [redacted] left'],
    ['secret: {"a":"in-object"}', 'secret: [redacted]'],
    ['password="no end', 'password="[redacted]'],
    [
      'author: bob, tokens: 5, tokenCount=3; the token expired',
      'author: bob, tokens: 5, tokenCount=3; the token expired',
    ],
    ['https://example.com/a?email=a@b.c', 'https://example.com/a?email=a@b.c'],
    ['{"password":["a","b]c"],"n":1}', '{"password":[redacted],"n":1}'],
    [String.raw`{"d":"{\"token\":[\"a]b\"],\"n\":1}"}`, String.raw`{"d":"{\"token\":[redacted],\"n\":1}"}`],
    ["set password = 'ab''cd' where n = 1", "set password = '[redacted]' where n = 1"],
    ["set password = '', n = 1", "set password = '', n = 1"],
    ['DB_PASS=a pass: b', 'DB_PASS=[redacted] pass: [redacted]'],
    ['compass: north, bypass=1', 'compass: north, bypass=1'],
  ])('redacts secrets in the text %j', (text, shown) => {
    expect(redactor.text(text)).toBe(shown);
  });

  it('recognizes a secret name in each of its spellings, and no other name', () => {
    const names = new SecretNames(['password', 'apiKey', 'auth']);
    for (const key of [
      'password',
      'Password',
      'db_password',
      'dbPassword',
      'PGPASSWORD',
      'x-password',
      'user[password]',
      'password[]',
      'password2',
      'X-Api-Key',
      'API_KEY',
      'apikey',
      'auth',
      'basic_auth',
    ])
      expect(names.has(key), key).toBe(true);
    for (const key of ['passport', 'passwordless', 'author', 'oauthor', 'key', 'api', 'keyapi', ''])
      expect(names.has(key), key).toBe(false);
  });

  it('redacts names in any script, and names made of signs alone', () => {
    const own = new Redactor(['пароль', '密码', '$$', 'क्षेत्र']);
    expect(own.text('пароль=тайна, Пароль2: "тайна", имя=x')).toBe(
      'пароль=[redacted], Пароль2: "[redacted]", имя=x',
    );
    expect(own.text(`?${encodeURIComponent('пароль')}=тайна&n=1`)).toBe(
      `?${encodeURIComponent('пароль')}=[redacted]&n=1`,
    );
    expect(own.text('密码=x user_密码=y $$=z क्षेत्र=x')).toBe(
      '密码=[redacted] user_密码=[redacted] $$=[redacted] क्षेत्र=[redacted]',
    );
    expect(JSON.stringify(own.value({ пароль: 1, новыйПароль: 2, $$: 3, имя: 4 }))).toBe(
      JSON.stringify({ пароль: '[redacted]', новыйПароль: '[redacted]', $$: '[redacted]', имя: 4 }),
    );
  });

  it('redacts the last key of a path in texts, however the path is written', () => {
    const own = new Redactor(['card.number']);
    expect(
      own.text('card.number=4111 card[number]=4112 card%5Bnumber%5D=4113 number=4114 card[number][0]=4115'),
    ).toBe(
      'card.number=[redacted] card[number]=[redacted] card%5Bnumber%5D=[redacted] number=[redacted] card[number][0]=[redacted]',
    );
    expect(own.text('numbers=1 card=2 number.of=3')).toBe('numbers=1 card=2 number.of=3');
  });

  it('groups failures by their redacted messages', async () => {
    const mill = aMill(memory());
    mill.job<string>('login', ({ data }) => {
      throw new FatalError(data);
    });
    const messages = [
      'no: password1=hunter',
      'no: {"api_key2":"sk-live-abc"}',
      'no: password[0]=hunter',
      'no: password%5B%5D=hunter',
      'id 5 is too longlonglong',
      'id 6 is too longlonglong',
    ];
    for (const message of messages) await mill.enqueue('login', message);
    await mill.start();
    await until(
      'all have failed',
      async () => (await mill.jobs.count({ status: 'failed' })) === messages.length,
    );
    for (const rights of [as('view'), as('view', 'payload')]) {
      const { groups } = await aClient(mill, rights).get<Failures>('failures');
      expect(JSON.stringify(groups)).not.toMatch(/hunter|sk-live/u);
      expect(groups).toHaveLength(5);
      expect(groups.find(({ count }) => count === 2)).toMatchObject({
        pattern: 'id … is too longlonglong',
        search: rights.authorize().rights.includes('payload') ? 'is too longlonglong' : '',
      });
    }
  });

  it('redacts values by their names at any depth, also in JSON inside strings', () => {
    const value = {
      db_password: 'a',
      headers: { 'X-Api-Key': 'b', 'set-cookie': ['c'] },
      body: '{"client_secret":"d","n":1}',
      url: 'mongodb://u:e@h1,h2/app',
    };
    expect(JSON.stringify(redactor.value(value))).toBe(
      JSON.stringify({
        db_password: '[redacted]',
        headers: { 'X-Api-Key': '[redacted]', 'set-cookie': '[redacted]' },
        body: '{"client_secret":"[redacted]","n":1}',
        url: 'mongodb://[redacted]@h1,h2/app',
      }),
    );
  });

  it('redacts job names, unique keys, error names and filters in the audit log', async () => {
    const mill = aMill(memory());
    mill.job('login token=abc', () => {
      const error = new FatalError('no');
      error.name = 'password=inname';
      throw error;
    });
    const job = await mill.enqueue('login token=abc', {}, { uniqueKey: 'secret=xyz' });
    await mill.start();
    await until('it has failed', async () => (await mill.jobs.get(job.id))?.status === 'failed');
    const client = aClient(mill);
    const { items } = await client.get<WorkPage>('work');
    const detail = await client.get<WorkDetail>(`work/jobs/${items[0]!.id}`);
    await client.post('actions', { action: 'retry', target: { kind: 'jobs', query: 'error=token%3Dabc' } });
    await until('it is in the log', async () => (await mill.audit.list()).items.length > 0);
    const shown = JSON.stringify([
      items,
      detail,
      await client.get('overview'),
      await client.get('failures'),
      await client.get('audit'),
    ]);
    expect(shown).toContain('token=[redacted]');
    expect(shown).toContain('password=[redacted]');
    for (const secret of ['abc', 'inname', 'xyz']) expect(shown).not.toContain(secret);
    const paused = await client.post('names', {
      action: 'pause',
      kind: 'jobs',
      name: 'login token=[redacted]',
    });
    expect(paused.status).toBe(200);
    expect(
      (await client.post('names', { action: 'pause', kind: 'jobs', name: 'login token=abc' })).status,
    ).toBe(400);
  });

  it('redacts health and reasons, and shows database messages only with the payload right', async () => {
    const mill = aMill(memory());
    const health = mill.health();
    mill.health = () => ({
      ...health,
      reasons: ['outcomes that the database refuses: 1 (login token=abc 5: Key (mail)=(bob@x) exists)'],
      troubles: ['task token=abc: password=abc for bob', 'all 10 connections are in use'],
    });
    const job = await mill.enqueue('login token=abc', {}, { delay: '1h' });
    await mill.jobs.pause('login token=abc');
    const seen = async (...rights: Right[]): Promise<string> => {
      const client = aClient(mill, as(...rights));
      const detail = await client.get<WorkDetail>(`work/jobs/${Buffer.from(job.id).toString('base64url')}`);
      expect(detail.why.map(({ text }) => text).join()).toContain('"login token=[redacted]" are paused');
      return JSON.stringify([(await client.get<Overview>('overview')).health, detail.why]);
    };
    const [viewer, reader] = [await seen('view'), await seen('view', 'payload')];
    expect(viewer).not.toMatch(/abc|bob|mail/u);
    expect(viewer).toContain('outcomes that the database refuses: see the reason with the right');
    expect(viewer).toContain('all 10 connections are in use');
    expect(reader).not.toContain('abc');
    expect(reader).toContain('Key (mail)=(bob@x) exists');
  });

  it('hides schedule keys from viewers without the payload right, who can still act on them', async () => {
    const mill = aMill(memory());
    await mill.schedule('0 3 * * *', 'report', {}, { uniqueKey: 'customer:alice@example.com' });
    await mill.schedule('0 3 * * *', 'nightly', {});
    const viewer = aClient(mill, as('view', 'act'));
    const page = await viewer.get<{ items: ScheduleRow[] }>('schedules');
    const encoded = Buffer.from('alice').toString('base64url').slice(0, 5);
    expect(page.items.map(({ key }) => key)).toEqual(['nightly', '[redacted]']);
    expect(JSON.stringify(page)).not.toContain(encoded);
    const [, report] = page.items;
    expect(Buffer.from(report!.id, 'base64url').toString()).not.toContain('alice');
    expect(await viewer.post('schedules', { action: 'pause', id: report!.id })).toMatchObject({
      body: { outcome: 'paused' },
    });
    expect(JSON.stringify(await viewer.get('audit'))).not.toContain('alice');
    const reader = await aClient(mill, as('view', 'payload')).get<{ items: ScheduleRow[] }>('schedules');
    expect(reader.items.map(({ key }) => key)).toEqual(['nightly', 'customer:alice@example.com']);
    const other = aClient(mill, as('view', 'act'));
    expect((await other.post('schedules', { action: 'pause', id: report!.id })).status).toBe(404);
  });

  it('seals links to keys that contain a secret, for each kind of work', async () => {
    const store = memory();
    const mill = aMill(store);
    const sessions = store.collection('sessions');
    // Not due, so that it stays in the list.
    const sleepUntil = new Date(Date.now() + 3_600_000);
    sessions.insert({ _id: { token: 'tok-live-ABC', region: 'eu' }, sleepUntil });
    await mill.reactiveTask({ task: 'expire', collection: 'sessions', handler: () => undefined });
    mill.documents({ collection: 'sessions', onDocument: () => undefined });
    await mill.enqueue('mail', {}, { id: 'token=tok-live-ABC' });
    await mill.start();
    const client = aClient(mill);
    for (const kind of ['jobs', 'tasks', 'documents']) {
      const [item] = await until(`there are ${kind}`, async () => {
        const { items } = await client.get<WorkPage>(`work?kind=${kind}`);
        return items.length > 0 && items;
      });
      expect(item!.title, kind).toContain('[redacted]');
      expect(Buffer.from(item!.id, 'base64url').toString(), kind).not.toContain('tok-live');
      const detail = await client.get<WorkDetail>(`work/${kind}/${item!.id}`);
      expect(JSON.stringify({ ...detail, payload: null, source: null }), kind).not.toContain('tok-live');
    }
    const guess = Buffer.from('token=tok-live-ABC').toString('base64url');
    const wrong = Buffer.from('token=tok-live-XYZ').toString('base64url');
    const [guessed, missed] = [
      await client.ask(`api/work/jobs/${guess}`),
      await client.ask(`api/work/jobs/${wrong}`),
    ];
    expect([guessed.status, await guessed.text()]).toEqual([missed.status, await missed.text()]);
  });

  it('hides schedule keys in the titles and links of their jobs', async () => {
    const mill = aMill(memory());
    await mill.schedule('0 3 * * *', 'report', {}, { uniqueKey: 'alice@example.com' });
    await mill.schedule('0 3 * * *', 'nightly', {});
    const viewer = aClient(mill, as('view'));
    const { items } = await viewer.get<WorkPage>('work');
    expect(items.map(({ title }) => title).sort()).toEqual([
      'schedule:nightly:nightly',
      'schedule:report:[redacted]',
    ]);
    for (const { id } of items) {
      expect(Buffer.from(id, 'base64url').toString()).not.toContain('alice');
      expect(JSON.stringify(await viewer.get(`work/jobs/${id}`))).not.toContain('alice');
    }
  });

  it('rejects forged cursors of tasks and documents', async () => {
    const { mill, database } = await withSecretKeys('null, null');
    const viewer = aClient(mill, as('view'));
    const page = await until('both are planned', async () => {
      const found = await viewer.get<WorkPage>('work?kind=tasks&limit=1');
      return found.next !== null && found;
    });
    const forged = (place: unknown): string => Buffer.from(JSON.stringify(place)).toString('base64url');
    const at = { at: '2026-01-01T00:00:00.000Z', back: false };
    const tasks = forged({ ...at, key: '["expire","tok-live-B"]', sort: 'scheduledAt:-1' });
    const documents = forged({ ...at, at: null, key: '"tok-live-H"', order: 1 });
    expect((await viewer.ask(`api/work?kind=tasks&cursor=${tasks}`)).status).toBe(400);
    expect((await viewer.ask(`api/work?kind=documents&status=parked&cursor=${documents}`)).status).toBe(400);

    // A cursor or link that is used elsewhere is not quoted in the error.
    for (const path of [
      `work?kind=tasks&cursor=${page.items[0]!.id}`,
      `work?kind=tasks&sort=createdAt&cursor=${page.next!}`,
      `work?kind=documents&cursor=${page.next!}`,
      `work?kind=jobs&cursor=${page.next!}`,
    ]) {
      const answer = await viewer.ask(`api/${path}`);
      expect(answer.status, path).toBe(404);
      expect(await answer.text(), path).not.toMatch(/got/u);
    }
    expect((await viewer.get<WorkPage>(`work?kind=tasks&cursor=${page.next!}`)).items).toHaveLength(1);

    // No document is due: the key is hidden all the same.
    const reader = aClient(mill, as('view', 'payload'));
    const filtered = await reader.ask('api/work?kind=documents&status=parked&field=_id:tok-live-GHI');
    expect(filtered.status).toBe(403);
    await mill.stop();
    await database.close();
  });

  it("redacts a table's secret key column in titles, links and cursors, and refuses to filter by it", async () => {
    const { mill, database } = await withSecretKeys(`now() + interval '1 hour', '@daily'`);
    const client = aClient(mill);
    const page = await until('both are planned', async () => {
      const found = await client.get<WorkPage>('work?kind=tasks&limit=1');
      return found.next !== null && found;
    });
    expect(page.items[0]).toMatchObject({ title: '[redacted]' });
    const told = (items: readonly WorkItem[], ...more: (string | null)[]): string =>
      [
        JSON.stringify(items),
        ...[...items.map(({ id }) => id), ...more].map((ref) =>
          Buffer.from(ref ?? '', 'base64url').toString(),
        ),
      ].join();
    expect(told(page.items, page.next)).not.toContain('tok-live');
    const second = await client.get<WorkPage>(`work?kind=tasks&limit=1&cursor=${page.next!}`);
    expect(second.items).toHaveLength(1);
    expect(second.items[0]!.id).not.toBe(page.items[0]!.id);
    const detail = await client.get<WorkDetail>(`work/tasks/${page.items[0]!.id}`);
    expect(JSON.stringify(detail)).not.toContain('tok-live');
    const acted = await client.post('act', { action: 'retry', kind: 'tasks', id: page.items[0]!.id });
    expect(acted.status).toBe(200);
    expect(JSON.stringify(await client.get('audit'))).not.toContain('tok-live');
    for (const kind of ['tasks', 'documents'])
      for (const field of ['token', '_id'])
        expect((await client.ask(`api/work?kind=${kind}&field=${field}:tok-live-ABC`)).status, field).toBe(
          403,
        );
    const documents = await client.get<WorkPage>('work?kind=documents');
    expect(documents.items[0]).toMatchObject({ title: '[redacted]' });
    expect(told(documents.items)).not.toContain('tok-live');
    await mill.stop();
    await database.close();
  });
});
