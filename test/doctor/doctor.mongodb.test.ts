import { startMongo, type MongoServer } from '@tidemill/servers';
import type { Collection } from 'mongodb';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { Tidemill } from '../../src/index.js';
import { openStore } from '../../src/mill/opening/open-store.js';
import { freshUri, rawClient } from '../support/stores.js';
import { aMill, until } from '../support/mills.js';
import { findingOf, findingsOf } from './findings.js';

// A server of its own: how far back the shared server's oplog reaches depends on what other files wrote.
const own = await startMongo({ oplogMb: 990 });
afterAll(() => own.stop());
const client = rawClient(own.uri);

/** A mill that visits, as the command does: it creates nothing that is missing. */
const visitor = async (uri: string): Promise<Tidemill> => aMill(await openStore(uri, { visit: 'inspect' }));
const databaseOf = (uri: string): string => new URL(uri).pathname.slice(1);
const inDatabase = (uri: string, name: string): Collection => client.db(databaseOf(uri)).collection(name);

describe('the doctor on MongoDB', () => {
  let uri: string;
  /** Runs a reactive task and stands for the deployment. */
  let deployed: Tidemill;

  beforeAll(async () => {
    uri = freshUri(own.uri);
    deployed = new Tidemill({ store: uri, logger: false, instanceId: 'deployed' });
    await deployed.reactiveTask({ task: 'ship', collection: 'orders', handler: () => undefined });
    await deployed.start();
    await until(
      'the task is planned',
      async () => (await findingOf(deployed, 'reactive tasks')).status === 'ok',
    );
  });
  afterAll(() => deployed.stop());
  afterEach(() => vi.useRealTimers());

  it('the doctor finds nothing wrong in a healthy MongoDB deployment', async () => {
    const findings = await (await visitor(uri)).doctor();
    expect(findings.filter(({ status }) => status === 'warn' || status === 'fail')).toEqual([]);
    expect(findings.map(({ check }) => check)).toEqual([
      'connection',
      'version',
      'topology',
      'indexes',
      'oplog',
      'clock',
      'instances',
      'jobs',
      'paused',
      'limits',
      'reactive tasks',
      'document schedules',
    ]);
  });

  it('the doctor names missing and differing indexes of every collection, with the command to fix each', async () => {
    await inDatabase(uri, 'tidemill_jobs').dropIndex('tidemill_created');
    await inDatabase(uri, 'orders_tasks').dropIndex('tidemill_held');
    const globals = inDatabase(uri, '_tidemill_globals');
    await globals.dropIndex('tidemill_kind');
    await globals.createIndexes([{ key: { kind: 1, other: 1 }, name: 'tidemill_kind' }]);

    const findings = await findingsOf(await visitor(uri), 'indexes');

    expect(findings).toEqual([
      {
        check: 'indexes',
        status: 'fail',
        found: 'tidemill_jobs: index tidemill_created is missing',
        fix: expect.stringContaining(
          'db.getCollection("tidemill_jobs").createIndex({"createdAt":1,"_id":1}',
        ) as string,
      },
      expect.objectContaining({
        found: '_tidemill_globals: index tidemill_kind is not as required',
        fix: expect.stringContaining('dropIndex("tidemill_kind")') as string,
        destroys: true,
      }),
      expect.objectContaining({ found: 'orders_tasks: index tidemill_held is missing' }),
    ]);
    // An inspection creates nothing.
    expect(await findingsOf(await visitor(uri), 'indexes')).toHaveLength(3);
    await deployed.stop();
    // No instance is alive: a newer version may have created the index and merely be down.
    const fixes = (await findingsOf(await visitor(uri), 'indexes')).map(({ fix }) => fix);
    expect(fixes.join()).not.toContain('drop');
    expect(fixes[1]).toMatch(/^start your application/u);
    await globals.dropIndex('tidemill_kind');
    await deployed.start();
    expect((await findingOf(await visitor(uri), 'indexes')).status).toBe('ok');
  });

  it('the doctor reports indexes that only earlier versions need, with the commands that drop them', async () => {
    const jobs = inDatabase(uri, 'tidemill_jobs');
    await jobs.createIndexes([{ key: { createdAt: -1, _id: -1 }, name: 'tidemill_by_age' }]);
    expect(await findingOf(await visitor(uri), 'indexes')).toMatchObject({
      status: 'warn',
      found: 'tidemill_jobs: tidemill_by_age served earlier versions, and each write still pays for them',
      fix: expect.stringMatching(
        /once no instance of an earlier version runs.*\n.*dropIndex\("tidemill_by_age"\)/u,
      ) as string,
    });
    await jobs.dropIndex('tidemill_by_age');
    expect((await findingOf(await visitor(uri), 'indexes')).status).toBe('ok');
  });

  it('the doctor reports a missing collection of wake-ups, with the commands that create it', async () => {
    const place = freshUri(own.uri);
    await aMill(await openStore(place)).jobs.stats();
    await inDatabase(place, 'tidemill_jobs_wakes').drop();
    expect(await findingOf(await visitor(place), 'indexes')).toMatchObject({
      status: 'warn',
      found: expect.stringContaining('no capped collection tidemill_jobs_wakes') as string,
      fix: expect.stringContaining('db.createCollection("tidemill_jobs_wakes", { capped: true') as string,
    });
  });

  it("the doctor reports a database without Tidemill's collections, and creates none", async () => {
    const empty = freshUri(own.uri);
    expect(await findingOf(await visitor(empty), 'indexes')).toMatchObject({
      status: 'warn',
      found: `nothing of Tidemill is in the database ${databaseOf(empty)} yet`,
    });
    expect(await client.db(databaseOf(empty)).listCollections().toArray()).toEqual([]);
  });

  it('the doctor warns about a local clock ahead of or behind the server', async () => {
    const mill = await visitor(uri);
    await mill.jobs.stats();
    // It stands still from now on, and the server's does not.
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 60_000 });
    expect(await findingOf(mill, 'clock')).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(/(?:60|[345]\d)\.\d s ahead of the server/u) as string,
    });
    vi.setSystemTime(Date.now() - 120_000);
    expect((await findingOf(mill, 'clock')).found).toContain('s behind the server');
  });

  it('the doctor names tasks that no live instance runs or that instances define differently', async () => {
    const other = aMill(await openStore(uri), { instanceId: 'other' });
    const handler = (): void => undefined;
    await other.reactiveTask({ task: 'ship', collection: 'orders', debounce: '3s', handler });
    await other.start();
    expect((await findingOf(deployed, 'reactive tasks')).found).toBe(
      'live instances have 2 different definitions of "ship"',
    );
    await other.stop();
    await deployed.stop();
    expect(await findingOf(await visitor(uri), 'reactive tasks')).toMatchObject({
      status: 'warn',
      found: '"ship" is planned, but no live instance runs it',
    });
    await deployed.start();
  });

  it('the doctor names the index that a document schedule lacks, and is satisfied once it exists', async () => {
    const mill = await visitor(uri);
    mill.documents({ collection: 'tenants', onDocument: () => undefined });
    await inDatabase(uri, 'tenants').insertOne({ sleepUntil: new Date() });
    const finding = await findingOf(mill, 'document schedules');
    expect(finding).toMatchObject({
      status: 'warn',
      fix: 'db.getCollection("tenants").createIndex({"sleepUntil":1})',
    });
    await inDatabase(uri, 'tenants').createIndexes([{ key: { sleepUntil: 1 } }]);
    expect((await findingOf(mill, 'document schedules')).status).toBe('ok');
  });

  it('the doctor reports an unreachable server as a finding, without its credentials', async () => {
    const mill = await visitor('mongodb://ada:secret@127.0.0.1:1/app?serverSelectionTimeoutMS=300');
    const [finding, ...others] = await mill.doctor();
    expect(others).toEqual([]);
    expect(finding).toMatchObject({ check: 'connection', status: 'fail' });
    expect(JSON.stringify(finding)).not.toContain('secret');
  });

  describe('a standalone MongoDB server', () => {
    let server: MongoServer;
    beforeAll(async () => {
      server = await startMongo({ standalone: true });
    });
    afterAll(() => server.stop());

    it('the doctor says what a standalone MongoDB server lacks, and how to convert it', async () => {
      expect(await findingOf(await visitor(freshUri(server.uri)), 'topology')).toMatchObject({
        status: 'warn',
        fix: expect.stringContaining('--replSet') as string,
      });
    });
  });
});
