import { expect, it } from 'vitest';
import type {
  Count,
  Failures,
  Operation,
  Overview,
  WorkDetail,
  WorkPage,
} from '../../src/dashboard/contract.js';
import { FatalError } from '../../src/index.js';
import { eachDatabase } from '../reactive/shared/test-databases.js';
import { until } from '../support/mills.js';
import { aClient } from './client.js';

eachDatabase('tasks and documents in the dashboard', (aDatabase) => {
  it('lists tasks with their documents and reasons, and retries one or many of them', async () => {
    const database = await aDatabase();
    const mill = database.mill();
    let broken = true;
    await mill.reactiveTask({
      task: 'sync',
      collection: 'things',
      debounce: 0,
      handler: ({ docId }) => {
        if (broken) throw new FatalError(`No room for ${String(docId)}`);
      },
    });
    await database.docs.insertMany([1, 2, 3, 4].map((_id) => ({ _id, status: _id > 2 ? 'new' : 'old' })));
    await mill.start();
    await until('all have failed', async () => (await mill.tasks.count({ status: 'failed' })) === 4);
    await until('all were looked at', async () => (await mill.tasks.planning()).reconciling.length === 0);
    const client = aClient(mill);
    expect((await client.session()).kinds).toEqual(['jobs', 'tasks']);
    const overview = await client.get<Overview>('overview');
    expect(overview.names).toMatchObject([
      { kind: 'tasks', name: 'sync', counts: { failed: 4 }, instances: 1 },
    ]);
    expect(overview.planner).toMatchObject({ leader: mill.instanceId, reconciling: [] });
    const list = (query: string): Promise<WorkPage> => client.get<WorkPage>(`work?kind=tasks&${query}`);
    const { items } = await list('status=failed&field=status:new');
    expect(items.map(({ title }) => title).sort()).toEqual(['3', '4']);
    expect((await list('field=_id:3')).items).toHaveLength(1);
    const far = encodeURIComponent('2020-01-01T00:00:00Z');
    expect((await list(`time=createdAt&to=${far}`)).items).toEqual([]);
    const first = await list('limit=3');
    expect((await list(`limit=3&cursor=${encodeURIComponent(first.next!)}`)).items).toHaveLength(1);
    const detail = await client.get<WorkDetail>(`work/tasks/${items[0]!.id}`);
    expect(detail).toMatchObject({
      name: 'sync',
      source: { document: { status: 'new' } },
      timeline: [{ status: 'failed', error: { name: 'FatalError' } }],
      actions: ['retry'],
    });
    const blind = aClient(mill, { authorize: () => ['view'] });
    const hidden = await blind.get<WorkDetail>(`work/tasks/${items[0]!.id}`);
    expect([hidden.hidden, hidden.source, hidden.payload]).toEqual([true, undefined, undefined]);
    expect(await client.get<Failures>('failures?kind=tasks')).toMatchObject({
      groups: [{ kind: 'tasks', count: 4 }],
    });

    await client.post('names', { action: 'pause', kind: 'tasks', name: 'sync' });
    broken = false;
    const one = { action: 'retry', kind: 'tasks', id: items[0]!.id };
    expect(await client.post('act', one)).toMatchObject({ body: { outcome: 'retried' } });
    // A claim that was under way at the pause hands back what it took.
    const waiting = await until('it waits', async () => {
      const now = await client.get<WorkDetail>(`work/tasks/${items[0]!.id}`);
      return now.why.length > 0 && now;
    });
    expect(waiting.why.map(({ code }) => code)).toEqual(['paused']);
    const target = { kind: 'tasks', query: 'name=sync' };
    const { body: count } = await client.post<Count>('count', { ...target, action: 'retry' });
    expect(count.count).toBe(3);
    const { body: begun } = await client.post<Operation>('actions', {
      action: 'retry',
      target,
      asOf: count.asOf,
    });
    await until('it has ended', async () => {
      const operation = await client.get<Operation>(`operations/${begun.id}`);
      return operation.state === 'done' && operation.done === 3;
    });
    await client.post('names', { action: 'resume', kind: 'tasks', name: 'sync' });
    await until('all are done', async () => (await mill.tasks.count({ status: 'completed' })) === 4);
    expect(await client.post('names', { action: 'reconcile', kind: 'tasks', name: 'sync' })).toMatchObject({
      body: { outcome: 'requested' },
    });
    const unknown = await client.post('names', { action: 'reconcile', kind: 'tasks', name: 'nothing' });
    expect(unknown).toMatchObject({ status: 404, body: { error: { code: 'task_missing' } } });
  });

  it('forgets a task by name once no live instance runs it', async () => {
    const database = await aDatabase();
    const [before, viewer] = [database.mill(), database.mill()];
    await before.reactiveTask({ task: 'sync', collection: 'things', debounce: 0, handler: () => undefined });
    await database.docs.insertMany([1, 2].map((_id) => ({ _id })));
    await before.start();
    await until('both ran', async () => (await before.tasks.count({ status: 'completed' })) === 2);
    const client = aClient(viewer);
    const forget = { action: 'forget', kind: 'tasks', name: 'sync' };
    expect((await client.session()).nameActions.tasks).toContain('forget');
    const refused = await client.post<{ error: { message: string } }>('names', forget);
    expect(refused.body.error.message).toContain(`live instances run the task "sync": ${before.instanceId}`);
    await before.stop();
    expect(await client.post('names', forget)).toMatchObject({ body: { outcome: 'forgotten' } });
    expect(await viewer.tasks.count()).toBe(0);
    expect((await viewer.audit.list()).items[0]).toMatchObject({ action: 'forget', outcome: 'forgotten' });
  });

  it('lists documents by state and field, and runs one now', async () => {
    const database = await aDatabase();
    const mill = database.mill();
    const ran: unknown[] = [];
    mill.documents({
      collection: 'things',
      fields: { sleepUntil: 'until' },
      onDocument: (document) => void ran.push(document['n']),
    });
    const soon = new Date(Date.now() + 3_600_000);
    await database.docs.insertMany([
      { _id: 1, n: 10, until: soon },
      { _id: 2, n: 20, until: new Date(soon.getTime() + 1_000) },
    ]);
    const client = aClient(mill);
    expect((await client.session()).kinds).toContain('documents');
    const { items } = await client.get<WorkPage>('work?kind=documents&name=things');
    expect(items).toMatchObject([{ title: '1', status: 'waiting' }, { title: '2' }]);
    expect((await client.get<WorkPage>('work?kind=documents&field=n:20')).items).toMatchObject([
      { title: '2' },
    ]);
    expect((await client.get<WorkPage>('work?kind=documents&status=due')).items).toEqual([]);
    expect((await client.ask('api/work?kind=documents&status=due&status=failed')).status).toBe(400);
    const detail = await client.get<WorkDetail>(`work/documents/${items[0]!.id}`);
    expect(detail).toMatchObject({
      payload: { n: 10 },
      actions: ['run-now'],
      why: [{ code: 'not-due' }, {}],
    });
    expect((await client.get<Overview>('overview')).names).toMatchObject([
      { kind: 'documents', name: 'things', counts: { waiting: 2, due: 0 } },
    ]);
    const act = { action: 'run-now', kind: 'documents', id: items[0]!.id };
    expect(await client.post('act', act)).toMatchObject({ body: { outcome: 'due' } });
    await mill.start();
    await until('it has run', () => ran.length === 1);
    expect(ran).toEqual([10]);
  });
});
