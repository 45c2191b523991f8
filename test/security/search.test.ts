import { describe, expect, it } from 'vitest';
import type { Count, Operation, Right, WorkPage } from '../../src/dashboard/contract.js';
import { FatalError, type Tidemill } from '../../src/index.js';
import { aClient, type Client } from '../dashboard/client.js';
import { aMill, until } from '../support/mills.js';
import { memory } from '../../src/memory/index.js';

const as = (...rights: Right[]) => ({ authorize: () => ({ rights, actor: 'ada' }) });

/** Jobs that failed with these messages. */
async function failed(...messages: string[]): Promise<Tidemill> {
  const mill = aMill(memory());
  mill.job<string>('login', ({ data }) => {
    throw new FatalError(data);
  });
  for (const message of messages) await mill.enqueue('login', message);
  await mill.start();
  await until(
    'all have failed',
    async () => (await mill.jobs.count({ status: 'failed' })) === messages.length,
  );
  return mill;
}

const found = async (client: Client, error: string, more = ''): Promise<WorkPage> =>
  client.get<WorkPage>(`work?error=${encodeURIComponent(error)}${more}`);

describe('searching error messages', () => {
  it('a search by error is refused without the payload right', async () => {
    const mill = await failed('password=hunter2');
    const viewer = aClient(mill, as('view', 'act'));
    expect((await viewer.ask('api/work?error=pass')).status).toBe(403);
    expect((await viewer.post('count', { kind: 'jobs', query: 'error=pass' })).status).toBe(403);
    const target = { kind: 'jobs', query: 'error=pass' };
    expect((await viewer.post('actions', { action: 'retry', target })).status).toBe(403);
  });

  it('a search by error matches only what is shown, not what is redacted', async () => {
    const mill = await failed(
      'login failed: password=hunter2 for bob',
      'login failed: password=other for eve',
    );
    const client = aClient(mill);
    expect((await found(client, 'login failed')).items).toHaveLength(2);
    expect((await found(client, 'for bob')).items).toHaveLength(1);
    expect((await found(client, 'For BOB')).items).toHaveLength(1);
    for (const guess of ['password=h', 'hunter2', 'HUNTER2', 'nter', 'password=hunter2 for bob'])
      expect(await found(client, guess), guess).toEqual({
        items: [],
        next: null,
        previous: null,
        partial: false,
      });
  });

  it('cursors of a search by error come from shown items only', async () => {
    const mill = await failed('told b', 'password=hunter2', 'told a');
    const client = aClient(mill);
    const { next } = await client.get<WorkPage>('work?limit=1');
    const nothing = { items: [], next: null, previous: null, partial: false };
    expect(await found(client, 'password=h', `&cursor=${next!}`)).toEqual(nothing);
    expect(await found(client, 'password=x', `&cursor=${next!}`)).toEqual(nothing);
  });

  it('a search by error reads past any number of hidden matches without revealing them', async () => {
    const mill = await failed(...Array.from({ length: 30 }, () => 'password=hunter2'));
    expect(await found(aClient(mill), 'hunter2', '&limit=1')).toEqual({
      items: [],
      next: null,
      previous: null,
      partial: false,
    });
  });

  it('a search by error pages over hidden matches in both directions', async () => {
    const hidden = Array.from({ length: 3 }, () => 'password=hunter2');
    const mill = await failed(
      ...hidden,
      'hunter2 a',
      ...hidden,
      'hunter2 b',
      'hunter2 c',
      ...hidden,
      'hunter2 d',
    );
    const client = aClient(mill);
    const page = async (cursor: string | null): Promise<WorkPage> =>
      found(client, 'hunter2', `&limit=2${cursor === null ? '' : `&cursor=${cursor}`}`);
    const errors = ({ items }: WorkPage): unknown[] => items.map(({ error }) => error);
    const first = await page(null);
    expect(errors(first)).toEqual(['hunter2 d', 'hunter2 c']);
    expect(first.previous).toBeNull();
    const second = await page(first.next);
    expect(errors(second)).toEqual(['hunter2 b', 'hunter2 a']);
    expect(second.next).toBeNull();
    const again = await page(second.previous);
    expect(errors(again)).toEqual(['hunter2 d', 'hunter2 c']);
    expect(again.previous).toBeNull();
    expect(errors(await page(again.next))).toEqual(['hunter2 b', 'hunter2 a']);
  });

  it('pages, counts and actions of a search by error do not reveal hidden matches', async () => {
    const messages = ['told hunter2', ...Array.from({ length: 7 }, () => 'password=hunter2'), 'told hunter2'];
    const mill = await failed(...messages);
    const client = aClient(mill);
    const first = await found(client, 'hunter2', '&limit=1');
    expect(first.items).toHaveLength(1);
    const second = await found(client, 'hunter2', `&limit=1&cursor=${first.next!}`);
    expect(second.items).toHaveLength(1);
    expect(second.next).toBeNull();

    const target = { kind: 'jobs', query: 'error=hunter2' };
    const { body: count } = await client.post<Count>('count', { ...target, action: 'remove' });
    expect(count.count).toBe(2);
    const { body: begun } = await client.post<Operation>('actions', {
      action: 'remove',
      target,
      asOf: count.asOf,
    });
    const ended = await until('it has ended', async () => {
      const operation = await client.get<Operation>(`operations/${begun.id}`);
      return operation.state !== 'running' && operation;
    });
    expect(ended).toMatchObject({ state: 'done', done: 2 });
    expect(await mill.jobs.count()).toBe(7);
  });
});
