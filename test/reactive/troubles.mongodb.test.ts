import { startMongo, type MongoServer } from '@tidemill/servers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { until } from '../support/mills.js';
import { freshUri } from '../support/stores.js';
import { Plant } from './plant.js';

/** The server's error for a command that its user may not run. */
const UNAUTHORIZED = 13;

let server: MongoServer;
beforeAll(async () => {
  server = await startMongo({ failPoints: true });
});
afterAll(() => server.stop());

/** Refuses commands from now on, on one collection if given. Returns how to allow them again. */
async function refuse(
  plant: Plant,
  commands: readonly string[],
  collection?: string,
  database: string = plant.db.databaseName,
): Promise<() => Promise<void>> {
  const point = (mode: string, data: object): Promise<unknown> =>
    plant.client.db('admin').command({ configureFailPoint: 'failCommand', mode, data });
  await point('alwaysOn', {
    failCommands: commands,
    errorCode: UNAUTHORIZED,
    namespace: collection === undefined ? `${database}.$cmd.aggregate` : `${database}.${collection}`,
  });
  return async () => {
    await point('off', {});
  };
}

const aPlant = (): Plant => new Plant(freshUri(server.uri));

describe('a task that cannot be planned for a reason of its own', () => {
  it('a task that cannot be planned blocks no other, is reported, and catches up once it can', async () => {
    const plant = aPlant();
    const mill = plant.mill({ leaseDuration: 3_000 });
    void plant.define(mill, { task: 'bad', collection: 'bads' });
    void plant.define(mill, { task: 'good', collection: 'goods' });
    await mill.start();
    await plant.ready();
    const allow = await refuse(plant, ['aggregate'], 'bads');
    await plant.collection('bads').insertOne({ _id: 1 });
    await plant.collection('goods').insertOne({ _id: 1 });
    await plant.ran(1, 1, 'good');
    await until('the trouble is told', () => mill.health().troubles.some((text) => text.startsWith('bad: ')));
    expect(mill.isHealthy()).toBe(true);
    expect(plant.errors.length).toBeGreaterThan(0);
    await allow();
    await plant.ran(1, 1, 'bad');
    await until('the trouble is over', () => mill.health().troubles.length === 0);
  });
});

describe('a database whose changes cannot be followed', () => {
  it('a database that cannot be watched holds up no other, and catches up once it can', async () => {
    const plant = aPlant();
    const other = `${plant.db.databaseName}_other`;
    const allow = await refuse(plant, ['aggregate'], undefined, other);
    await plant.collection('items', other).insertOne({ _id: 'early' });
    const mill = plant.mill();
    void plant.define(mill, { task: 'there', collection: 'items', database: other });
    void plant.define(mill, { task: 'here', collection: 'items' });
    await plant.collection('items').insertOne({ _id: 'old' });
    await mill.start();
    await plant.ran('old', 1, 'here');
    await plant.collection('items').insertOne({ _id: 'new' });
    await plant.ran('new', 1, 'here');
    expect(plant.runs.some(({ task }) => task === 'there')).toBe(false);
    await allow();
    await plant.ran('early', 1, 'there');
    await plant.collection('items', other).insertOne({ _id: 'late' });
    await plant.ran('late', 1, 'there');
  });
});

describe("another service's task that this leader may not prepare", () => {
  it("a leader that may not prepare another service's task still plans its own", async () => {
    const plant = aPlant();
    const theirs = plant.mill();
    void plant.define(theirs, { task: 'theirs', collection: 'b' });
    await theirs.start();
    await plant.ready();
    await theirs.stop();
    const allow = await refuse(plant, ['createIndexes'], 'b_tasks');
    const ours = plant.mill();
    void plant.define(ours, { task: 'ours', collection: 'a' });
    await ours.start();
    await plant.collection('a').insertOne({ _id: 1 });
    await plant.ran(1, 1, 'ours');
    await allow();
  });
});

describe('two services that use one name for two tasks', () => {
  it('warns if two services use the same task name for different collections', async () => {
    const plant = aPlant();
    const lines: string[] = [];
    const line = (_fields: object, message: string): void => void lines.push(message);
    const logger = { debug: line, info: line, warn: line, error: line };
    const first = plant.mill({ logger });
    const second = plant.mill({ logger });
    void plant.define(first, { task: 'same', collection: 'orders' });
    void plant.define(second, { task: 'same', collection: 'users' });
    await first.start();
    await second.start();
    await until('one is told', () =>
      lines.some((text) => text.startsWith("same: another instance's definition")),
    );
  });
});
