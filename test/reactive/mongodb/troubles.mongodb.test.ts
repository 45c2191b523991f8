import { startMongo, type MongoServer } from '@tidemill/servers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { until } from '../../support/mills.js';
import { freshUri } from '../../support/stores.js';
import { Fixture } from '../fixture.js';

/** The server's error for a command that its user may not run. */
const UNAUTHORIZED = 13;

let server: MongoServer;
beforeAll(async () => {
  server = await startMongo({ failPoints: true });
});
afterAll(() => server.stop());

/** Refuses commands from now on, on one collection if given. Returns how to allow them again. */
async function refuse(
  fixture: Fixture,
  commands: readonly string[],
  collection?: string,
  database: string = fixture.db.databaseName,
): Promise<() => Promise<void>> {
  const point = (mode: string, data: object): Promise<unknown> =>
    fixture.client.db('admin').command({ configureFailPoint: 'failCommand', mode, data });
  await point('alwaysOn', {
    failCommands: commands,
    errorCode: UNAUTHORIZED,
    namespace: collection === undefined ? `${database}.$cmd.aggregate` : `${database}.${collection}`,
  });
  return async () => {
    await point('off', {});
  };
}

const aFixture = (): Fixture => new Fixture(freshUri(server.uri));

describe('a task that cannot be planned for a reason of its own', () => {
  it('a task that cannot be planned blocks no other, is reported, and catches up once it can', async () => {
    const fixture = aFixture();
    const mill = fixture.mill({ leaseDuration: 3_000 });
    void fixture.define(mill, { task: 'bad', collection: 'bads' });
    void fixture.define(mill, { task: 'good', collection: 'goods' });
    await mill.start();
    await fixture.ready();
    const allow = await refuse(fixture, ['aggregate'], 'bads');
    await fixture.collection('bads').insertOne({ _id: 1 });
    await fixture.collection('goods').insertOne({ _id: 1 });
    await fixture.ran(1, 1, 'good');
    await until('the trouble is told', () => mill.health().troubles.some((text) => text.startsWith('bad: ')));
    expect(mill.isHealthy()).toBe(true);
    expect(fixture.errors.length).toBeGreaterThan(0);
    await allow();
    await fixture.ran(1, 1, 'bad');
    await until('the trouble is over', () => mill.health().troubles.length === 0);
  });
});

describe('a database whose changes cannot be followed', () => {
  it('a database that cannot be watched holds up no other, and catches up once it can', async () => {
    const fixture = aFixture();
    const other = `${fixture.db.databaseName}_other`;
    const allow = await refuse(fixture, ['aggregate'], undefined, other);
    await fixture.collection('items', other).insertOne({ _id: 'early' });
    const mill = fixture.mill();
    void fixture.define(mill, { task: 'there', collection: 'items', database: other });
    void fixture.define(mill, { task: 'here', collection: 'items' });
    await fixture.collection('items').insertOne({ _id: 'old' });
    await mill.start();
    await fixture.ran('old', 1, 'here');
    await fixture.collection('items').insertOne({ _id: 'new' });
    await fixture.ran('new', 1, 'here');
    expect(fixture.runs.some(({ task }) => task === 'there')).toBe(false);
    await allow();
    await fixture.ran('early', 1, 'there');
    await fixture.collection('items', other).insertOne({ _id: 'late' });
    await fixture.ran('late', 1, 'there');
  });
});

describe("another service's task that this leader may not prepare", () => {
  it("a leader that may not prepare another service's task still plans its own", async () => {
    const fixture = aFixture();
    const theirs = fixture.mill();
    void fixture.define(theirs, { task: 'theirs', collection: 'b' });
    await theirs.start();
    await fixture.ready();
    await theirs.stop();
    const allow = await refuse(fixture, ['createIndexes'], 'b_tasks');
    const ours = fixture.mill();
    void fixture.define(ours, { task: 'ours', collection: 'a' });
    await ours.start();
    await fixture.collection('a').insertOne({ _id: 1 });
    await fixture.ran(1, 1, 'ours');
    await allow();
  });
});

describe('two services that use one name for two tasks', () => {
  it('warns if two services use the same task name for different collections', async () => {
    const fixture = aFixture();
    const lines: string[] = [];
    const line = (_fields: object, message: string): void => void lines.push(message);
    const logger = { debug: line, info: line, warn: line, error: line };
    const first = fixture.mill({ logger });
    const second = fixture.mill({ logger });
    void fixture.define(first, { task: 'same', collection: 'orders' });
    void fixture.define(second, { task: 'same', collection: 'users' });
    await first.start();
    await second.start();
    await until('one is told', () =>
      lines.some((text) => text.startsWith("same: another instance's definition")),
    );
  });
});
