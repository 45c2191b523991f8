/**
 * Planning with 1, 10 and 100 tasks on one collection or table: documents per second from an update of all of them
 * until each is planned, and the CPU time that it costs (server and process), which depends less on other load. Each
 * document matches one of the tasks, or all of them. `one by one` is the same planner without shared statements, in the
 * same run. Takes minutes; run it alone.
 */
import { startMongo, startPostgres } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import pg from 'pg';
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { postgres } from 'tidemill/postgres';
import type { Store } from '../src/store/port.js';
import { nanos, sinceMs, sleep } from './lib/clock.js';
import { cpuSeconds } from './lib/cpu.js';
import { record } from './lib/report.js';
import { round } from './lib/stats.js';
import { once } from './measure/postgres/bench.js';

const QUICK = process.argv.includes('--quick');
const ROUNDS = QUICK ? 1 : 3;
const COUNTS = [1, 10, 100];
const SOURCE = 'things';

/** A database, fresh for each measurement. */
interface Scene {
  readonly store: Store;
  readonly serverPid: number | undefined;
  /** Documents with a `kind` below `kinds`. */
  readonly fill: (documents: number, kinds: number) => Promise<unknown>;
  readonly update: (n: number) => Promise<unknown>;
  /** How many tasks of the last document, or of all, have this `n` in their snapshot. */
  readonly planned: (
    n: number,
    last?: { readonly id: number; readonly tasks: readonly string[] },
  ) => Promise<number>;
  readonly close: () => Promise<unknown>;
}

const mongo = await startMongo();
const sql = await startPostgres();
const [postmaster] = await once<{ pid: string }>(
  sql.url,
  `select split_part(pg_read_file('postmaster.pid'), chr(10), 1) as pid`,
);
let made = 0;

async function onMongodb(): Promise<Scene> {
  const client = await MongoClient.connect(mongo.uri);
  const db = client.db(`many_${String((made += 1))}`);
  const tasks = db.collection(`${SOURCE}_tasks`);
  return {
    store: mongodb({ client, database: db.databaseName }),
    serverPid: mongo.members[0]?.pid,
    fill: (documents, kinds) =>
      db
        .collection<{ _id: number; kind: number; n: number }>(SOURCE)
        .insertMany(Array.from({ length: documents }, (_, id) => ({ _id: id, kind: id % kinds, n: 0 }))),
    update: (n) => db.collection(SOURCE).updateMany({}, { $set: { n } }),
    planned: (n, last) => {
      const keys = last?.tasks.map((task) => ({ task, id: last.id }));
      return tasks.countDocuments({
        ...(keys === undefined ? {} : { _id: { $in: keys as never[] } }),
        'lastObservedValues.n': n,
      });
    },
    close: async () => {
      await db.dropDatabase();
      await client.close();
    },
  };
}

async function onPostgres(): Promise<Scene> {
  const pool = new pg.Pool({ connectionString: sql.url, max: 2 });
  await pool.query(`drop schema if exists tidemill cascade; drop table if exists ${SOURCE};
    create table ${SOURCE} (id integer primary key, kind integer, n integer)`);
  return {
    store: postgres({ url: sql.url }),
    serverPid: Number(postmaster?.pid),
    fill: async (documents, kinds) => {
      await pool.query(
        `insert into ${SOURCE} select id, id % ${String(kinds)}, 0 from generate_series(0, ${String(documents - 1)}) id`,
      );
      await pool.query(`analyze ${SOURCE}`);
    },
    update: (n) => pool.query(`update ${SOURCE} set n = ${String(n)}`),
    planned: async (n, last) => {
      const of = last === undefined ? 'true' : 'task = any($2) and key = $3';
      const { rows } = await pool.query<{ count: string }>(
        `select count(*) from tidemill.tasks where (last_observed_values ->> 'n')::integer = $1::integer and ${of}`,
        last === undefined ? [n] : [n, last.tasks, JSON.stringify([String(last.id)])],
      );
      return Number(rows[0]?.count);
    },
    close: () => pool.end(),
  };
}

interface Case {
  readonly count: number;
  readonly match: 'one' | 'all';
  readonly shared: boolean;
}

interface Measured {
  readonly perSecond: number;
  /** Milliseconds of CPU time per thousand documents. */
  readonly cpuMs: number;
}

async function measured(open: () => Promise<Scene>, { count, match, shared }: Case): Promise<Measured> {
  const scene = await open();
  const documents = (match === 'one' ? 10_000 : Math.max(500, 10_000 / count)) / (QUICK ? 2 : 1);
  const expected = match === 'one' ? documents : documents * count;
  const planning = scene.store.reactive?.planning;
  if (!shared && planning !== undefined) Reflect.deleteProperty(planning, 'planTogether');
  await using mill = new Tidemill({ store: scene.store, logger: false, leaseDuration: '2m' });
  const tasks = Array.from({ length: count }, (_, at) => `task-${String(at)}`);
  for (const [at, task] of tasks.entries())
    await mill.reactiveTask({
      task,
      collection: SOURCE,
      filter: match === 'one' ? { kind: at } : { kind: { $gte: 0 } },
      watchProjection: { n: 1 },
      debounce: '1h',
      handler: () => undefined,
    });
  await scene.fill(documents, match === 'one' ? count : 1);
  await mill.start();
  while ((await scene.planned(0)) < expected) await sleep(200);
  await sleep(2_000);
  const last = { id: documents - 1, tasks };
  const cpu = (): number => cpuSeconds(scene.serverPid) + cpuSeconds(process.pid);
  const [began, before] = [nanos(), cpu()];
  await scene.update(1);
  while ((await scene.planned(1, last)) < (match === 'one' ? 1 : count)) await sleep(20);
  while ((await scene.planned(1)) < expected) await sleep(50);
  const perSecond = documents / (sinceMs(began) / 1_000);
  const cpuMs = ((cpu() - before) * 1_000_000) / documents;
  await mill.stop();
  await scene.close();
  return { perSecond, cpuMs };
}

const rows: object[] = [];
const ways = { MongoDB: onMongodb, PostgreSQL: onPostgres };
for (const [name, open] of Object.entries(ways))
  for (const match of ['one', 'all'] as const)
    for (const count of COUNTS)
      for (const shared of [false, true]) {
        // The statements of a single task are never shared.
        if (count === 1 && !shared) continue;
        const runs: Measured[] = [];
        for (let at = 0; at < ROUNDS; at += 1) runs.push(await measured(open, { count, match, shared }));
        const way = `${name}, each document matches ${match}, ${String(count)} tasks${shared ? '' : ', one by one'}`;
        const rate = round(Math.max(...runs.map(({ perSecond }) => perSecond)));
        const cpuMs = round(Math.min(...runs.map((run) => run.cpuMs)));
        console.log(`${way}: ${String(rate)}/s, ${String(cpuMs)} ms of CPU time per 1,000 documents`);
        rows.push({ store: name, match, tasks: count, shared, rate, cpuMs, runs });
      }
record('many-tasks', { rows }, QUICK);
await mongo.stop();
await sql.stop();
