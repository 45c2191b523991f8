import { Decimal128, Double, Long, MongoClient } from 'mongodb';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fetchPackages } from '../../../scripts/fetch.mjs';
import { ranMeanwhile, signsOfLife, takeOverCron } from '../../../src/compat/mongodash/take-over/cron.js';
import { takeOver, type TakenOver } from '../../../src/compat/mongodash/take-over/take-over.js';
import { mongodb } from '../../../src/mongodb/index.js';
import { aMill } from '../../support/mills.js';
import { runOn, type Pair } from '../../support/originals.js';
import { freshUri } from '../../support/stores.js';
import { tidemill } from '../../cli/terminal.js';

const PAIR: Pair = { entry: 'tidemill/compat/mongodash', original: 'mongodash/dist/lib/index.js' };
const script = new URL('moving.ts', import.meta.url);
const uri = freshUri();
const client = new MongoClient(uri);
const meta = { _id: '_mongodash_planner_meta' } as never;

interface Ran {
  readonly ran: readonly string[];
  readonly failed: unknown;
  readonly schedule: unknown;
}

let before: Ran;
let dry: TakenOver;
let taken: TakenOver;
let again: TakenOver;
let after: Ran;
const refusals: unknown[] = [];

const refusal = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => 'accepted',
    (error: unknown) => (error as { code?: unknown; message?: unknown }).code ?? (error as Error).message,
  );

/** What happens to the data while neither library runs. */
async function changeDocuments(): Promise<void> {
  const docs = client.db().collection('docs');
  await docs.updateOne({ _id: 'touched' } as never, { $set: { other: 1 } });
  await docs.updateOne({ _id: 'changes' } as never, { $set: { title: 'C' } });
  await docs.updateOne({ _id: 'leaves' } as never, { $set: { live: false } });
  await docs.deleteOne({ _id: 'goes' } as never);
  await docs.insertOne({ _id: 'new', title: 'n', live: true } as never);
  await client
    .db()
    .collection('notes')
    .updateOne({ _id: 7 } as never, { $set: { text: 'changed' } });
}

beforeAll(async () => {
  await fetchPackages('test/originals');
  const docs = client.db().collection('docs');
  await docs.insertMany([
    { _id: 'long', title: Long.fromNumber(2), live: true },
    { _id: 'double', title: new Double(2), live: true },
    { _id: 'decimal', title: Decimal128.fromString('2.50'), live: true, meta: { lang: null } },
  ] as never[]);
  before = (await runOn('original', script, PAIR, [uri, 'before'])) as unknown as Ran;
  const globals = client.db().collection('_mongodash_globals');
  await globals.updateOne(meta, { $set: { 'lock.expiresAt': new Date(Date.now() + 60_000) } });
  refusals.push(await refusal(takeOver({ client })));
  await globals.updateOne(meta, { $set: { 'lock.expiresAt': new Date(0) } });
  await changeDocuments();
  dry = await takeOver({ client, dryRun: true });
  const stop = (): never => {
    throw new Error('killed');
  };
  const half = takeOver({
    client,
    onProgress: (counts) => counts.some(({ total }) => total >= 500) && stop(),
  });
  refusals.push(await refusal(half));
  taken = await takeOver({ client });
  const command = await tidemill(['import', 'mongodash', '--from', uri, '--json', '--yes']);
  again = JSON.parse(command.out) as TakenOver;
  after = (await runOn('ours', script, PAIR, [uri, 'after'])) as unknown as Ran;
}, 600_000);

afterAll(() => client.close());

describe('taking over the data of mongodash', () => {
  it('is refused while an instance of mongodash leads', () => {
    expect(refusals[0]).toBe('BUSY');
  });

  it('counts first, and writes nothing then', () => {
    expect(dry.reactiveTasks.map(({ written }) => written)).toEqual([0, 0, 0, 0]);
    expect(dry).toMatchObject({ cronTasks: ['late', 'nightly', 'soon'], leftOut: [] });
  });

  it('tells what was handled, what waits, and what has changed', () => {
    const count = (task: string): unknown => taken.reactiveTasks.find((one) => one.task === task);
    expect(count('search.index')).toMatchObject({ total: 8, handled: 6, unfinished: 0, changed: 2 });
    expect(count('copy')).toMatchObject({ total: 600, handled: 599, changed: 1 });
    expect(count('breaks')).toMatchObject({ total: 1, handled: 1, unfinished: 0 });
    expect(count('waits')).toMatchObject({ total: 1, handled: 0, unfinished: 1 });
  });

  it('continues after an end in the middle, and may be repeated', () => {
    expect(refusals[1]).toBe('killed');
    expect(again.reactiveTasks.map(({ written }) => written)).toEqual([0, 0, 0, 0]);
    expect(again.reactiveTasks.map(({ total }) => total)).toEqual(
      taken.reactiveTasks.map(({ total }) => total),
    );
  });

  it('runs what waits and what has changed, and nothing twice', () => {
    expect(before.ran).toContain('copy 7');
    expect(after.ran).toEqual(['copy 7', 'index changes', 'index new', 'soon', 'waits']);
  });

  it('keeps failed tasks with their errors', () => {
    expect(after.failed).toEqual(before.failed);
    expect(after.failed).toEqual([{ task: 'breaks', sourceDocId: 'bad', attempts: 1, lastError: 'broken' }]);
  });

  it('keeps the times of cron tasks', () => {
    expect(after.schedule).toEqual(before.schedule);
  });

  it('is noticed if mongodash runs a cron task meanwhile, which then stays', async () => {
    const db = client.db('meanwhile');
    const cronTasks = db.collection<{ _id: string }>('cronTasks');
    const task = { runSince: new Date(0), runImmediately: false, runLog: [], lockedTill: null };
    await cronTasks.insertMany([
      { ...task, _id: 'idle' },
      { ...task, _id: 'runs' },
    ] as never[]);
    const signs = await signsOfLife(db);
    const mill = aMill(mongodb({ client, database: 'meanwhile' }));
    const meddled = {
      time: () => mill.time(),
      enqueue: mill.enqueue.bind(mill),
      schedule: async (...[times, name, ...rest]: Parameters<typeof mill.schedule>) => {
        if (name === 'runs') await cronTasks.updateOne({ _id: 'runs' }, { $set: { runSince: new Date() } });
        return mill.schedule(times, name, ...rest);
      },
    };
    expect(await takeOverCron(db, meddled as never, { dryRun: false, move: true })).toEqual({
      cronTasks: ['idle'],
      leftOut: [
        'cron task "runs": mongodash has run it during the take-over: stop all of its instances, and repeat the command',
      ],
    });
    expect(await ranMeanwhile(db, signs)).toEqual(['runs']);
    // Once it is stopped, the time of the last run counts.
    expect(await takeOverCron(db, mill as never, { dryRun: false, move: true })).toEqual({
      cronTasks: ['runs'],
      leftOut: [],
    });
    await client.db('meanwhile').dropDatabase();
  });

  it('leaves the records of mongodash as they are, unless they are moved', async () => {
    const records = client.db().collection('docs_tasks');
    expect(await records.countDocuments()).toBe(10);
    await takeOver({ client, move: true });
    expect(await records.countDocuments()).toBe(0);
    expect(await client.db().collection('cronTasks').countDocuments()).toBe(0);
  });
});
