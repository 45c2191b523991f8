import { describe, expect, it } from 'vitest';
import { memory } from '../../src/memory/index.js';
import { aClient, eventsOf } from '../dashboard/client.js';
import { aMill, until } from '../support/mills.js';

const byUser = {
  authorize: ({ headers }: Request) => {
    const actor = headers.get('x-user');
    return { rights: ['view'] as const, ...(actor === null ? {} : { actor }) };
  },
};

describe('live streams', () => {
  it('live streams are limited per viewer and in total, with a reason that the page shows', async () => {
    const { ask, dashboard } = aClient(aMill(memory()), {
      ...byUser,
      maxStreams: { total: 4, perViewer: 2 },
    });
    const open = (user?: string, path = 'work'): Promise<Response> =>
      ask(`api/live?path=${path}`, { headers: user === undefined ? {} : { 'x-user': user } });
    const first = await open('ada');
    const streams = [first, await open('ada', 'audit')];
    const refused = await open('ada', 'schedules');
    expect(refused.status).toBe(429);
    expect(await refused.json()).toMatchObject({
      error: { code: 'streams', message: expect.stringContaining('limit of live pages') as string },
    });
    // Viewers without a name cannot be told apart, and share what is left.
    streams.push(await open(), await open());
    expect(streams.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect((await open('eve')).status).toBe(503);
    expect(dashboard.streams).toBe(4);

    await eventsOf(first).cancel();
    await until('there is room again', () => dashboard.streams === 3);
    expect((await open('ada')).status).toBe(200);
    dashboard.close();
  });

  it('rejects maxStreams that are not positive whole numbers', () => {
    const make = (maxStreams: unknown) => () => aClient(aMill(memory()), { maxStreams } as never);
    expect(make({ total: 0 })).toThrow(/maxStreams: total must be a whole number/u);
    expect(make({ perUser: 1 })).toThrow(/Did you mean "perViewer"|unknown option "perUser"/u);
  });
});
