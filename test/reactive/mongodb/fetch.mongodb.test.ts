import { Int32, MongoClient, type CommandStartedEvent } from 'mongodb';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { GetDocumentOptions, TaskContext } from '../../../src/index.js';
import { mongodb } from '../../../src/mongodb/index.js';
import { aMill, gate } from '../../support/mills.js';
import { freshUri } from '../../support/stores.js';
import { statusesOf } from '../probes.js';
import { thingsFixture } from '../things-fixture.js';

const ONCE = { type: 'fixed', interval: 0, maxAttempts: 1 } as const;
const TASK = { task: 't', collection: 'things', debounce: 0 } as const;

/** The result of a handler's `getDocument(options)`, with the commands it sent. */
async function fetchedWith(
  options: GetDocumentOptions<never>,
  collation?: { readonly locale: string; readonly strength: number },
): Promise<{ readonly document: unknown; readonly commands: readonly CommandStartedEvent['command'][] }> {
  const client = new MongoClient(freshUri(), { monitorCommands: true });
  onTestFinished(() => client.close());
  if (collation !== undefined) await client.db().createCollection('things', { collation });
  const commands: CommandStartedEvent['command'][] = [];
  const seen = gate<unknown>();
  const mill = aMill(mongodb({ client }));
  await mill.reactiveTask({
    ...TASK,
    filter: { name: 'ada' },
    retryPolicy: ONCE,
    handler: async ({ getDocument }: TaskContext<object, never>) => {
      // The mill sends others meanwhile, such as those that open its streams.
      client.on('commandStarted', ({ command }) => {
        if (/^things/u.test(String(Object.values(command)[0]))) commands.push(command);
      });
      try {
        seen.open(await getDocument(options));
      } catch (error) {
        seen.open(error);
        throw error;
      }
    },
  });
  await mill.start();
  await client.db().collection<{ _id: number; name: string }>('things').insertOne({ _id: 1, name: 'ada' });
  const document = await seen.promise;
  await mill.stop();
  return { document, commands };
}

describe('options of getDocument on MongoDB', () => {
  it.each([
    ['a comment', { comment: 'sync of an order' }],
    ['a time limit', { maxTimeMS: 5_432 }],
    ['the read concern majority', { readConcern: { level: 'majority' } }],
    ['the read concern linearizable', { readConcern: { level: 'linearizable' } }],
    ['the read concern snapshot', { readConcern: { level: 'snapshot' } }],
  ])('getDocument sends along %s, also when it queries the source separately', async (_what, options) => {
    for (const collation of [undefined, { locale: 'en', strength: 2 }]) {
      const { document, commands } = await fetchedWith(options, collation);
      expect(document).toEqual({ _id: 1, name: 'ada' });
      const asked = commands.filter((command) => {
        const [name, value] = Object.entries(options)[0] as [string, unknown];
        return JSON.stringify(command[name] as unknown) === JSON.stringify(value);
      });
      expect(asked.map((command) => Object.keys(command)[0])).toEqual(
        collation === undefined ? ['aggregate'] : ['find', 'aggregate'],
      );
    }
  });

  it('getDocument passes promoteValues to the driver', async () => {
    const { document } = await fetchedWith({ promoteValues: false });
    expect(document).toEqual({ _id: new Int32(1), name: 'ada' });
  });

  it('getDocument accepts find options that have no effect on a single document', async () => {
    const options = { sort: { name: 1 }, limit: 1, hint: '_id_', batchSize: 10, allowDiskUse: true };
    const { document, commands } = await fetchedWith(options);
    expect(document).toEqual({ _id: 1, name: 'ada' });
    expect(commands).toContainEqual(
      expect.objectContaining({ aggregate: 'things_tasks', allowDiskUse: true }),
    );
  });

  it('getDocument accepts a read concern as a string', async () => {
    const { document, commands } = await fetchedWith({ readConcern: 'majority' });
    expect(document).toEqual({ _id: 1, name: 'ada' });
    expect(commands).toContainEqual(
      expect.objectContaining({ aggregate: 'things_tasks', readConcern: { level: 'majority' } }),
    );
  });
});

describe('errors of getDocument on MongoDB', () => {
  it.each([
    [{ readPreference: 'secondary' }, /readPreference is not an option.*primary.*leave it out/u],
    [{ readConcern: { level: 'available' } }, /readConcern must be one of local, majority/u],
    [{ readConcern: 'weak' }, /readConcern must be one of local, majority/u],
    [{ skip: 1 }, /unknown option.*skip/iu],
    [{ readConcern: null }, /readConcern must be one of local, majority/u],
  ])('getDocument with %o fails the attempt instead of skipping the task', async (options, message) => {
    const { docs, mill: make, reaches } = thingsFixture();
    const mill = make();
    await mill.reactiveTask({
      ...TASK,
      retryPolicy: ONCE,
      handler: ({ getDocument }) => getDocument(options as never),
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    const task = await reaches(mill, 't', 1, 'failed');
    expect(task.lastError).toMatch(message);
    expect(statusesOf(task)).toEqual(['failed']);
  });

  it("getDocument rejects with LEASE_LOST instead of skipping if it cannot see the task's claim", async () => {
    const { docs, stored, mill: make, reaches } = thingsFixture();
    const mill = make();
    const errors: unknown[] = [];
    const skipped: unknown[] = [];
    mill.on('task:skip', (event) => skipped.push(event));
    await mill.reactiveTask({
      ...TASK,
      retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 2 },
      handler: async ({ getDocument, attempt }) => {
        if (attempt > 1) return;
        // What a read sees that is older than the claim.
        const before = await stored.findOneAndUpdate({}, { $set: { leaseToken: null } });
        await getDocument().catch((error: unknown) => errors.push(error));
        await stored.updateOne({}, { $set: { leaseToken: before?.['leaseToken'] as string } });
        throw errors[0];
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    const task = await reaches(mill, 't', 1, 'completed');
    expect(errors).toMatchObject([{ code: 'LEASE_LOST' }]);
    expect(statusesOf(task)).toEqual(['failed', 'completed']);
    expect(skipped).toEqual([]);
  });
});
