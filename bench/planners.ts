/**
 * How fast a backlog of changes is planned by one, two and four processes, each with a partition of its own. The
 * planners are stopped while the documents are written, and time counts from when they continue. Prints the CPU seconds
 * of planners and server as well: on a machine with few cores their sum is the limit. With `--waits` each statement
 * that plans waits at the server, using no CPU, so that the database is not the limit. Takes a minute; run it alone.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { startMongo, startPostgres } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { built } from './lib/built.js';
import { nanos, sinceMs, sleep } from './lib/clock.js';
import { cpuSeconds } from './lib/cpu.js';
import { record } from './lib/report.js';
import { round } from './lib/stats.js';
import { once } from './measure/postgres/bench.js';

type Kind = 'mongodb' | 'postgres';

const QUICK = process.argv.includes('--quick');
const WAITS = process.argv.includes('--waits');
const DOCUMENTS = QUICK ? 5_000 : WAITS ? 12_000 : 40_000;
/** How long a change waits at the server, if it is to wait. */
const WAIT_MS = 1;
const LEASE_MS = 60_000;

/** Where the documents are, and how they are written and counted. */
interface Place {
  readonly url: string;
  readonly pid: number | undefined;
  readonly write: () => Promise<unknown>;
  readonly planned: () => Promise<number>;
  readonly close: () => Promise<unknown>;
}

async function plan(kind: Kind, url: string, partitions: number): Promise<void> {
  const { Tidemill } = await built('index');
  const store =
    kind === 'mongodb'
      ? (await built('mongodb')).mongodb({ uri: url })
      : (await built('postgres')).postgres({ url });
  const mill = new Tidemill({ store, leaseDuration: LEASE_MS, logger: false, reactive: { partitions } });
  let led = 0;
  const tell = (change: number) => (): void => {
    led += change;
    process.send?.(led);
  };
  mill.on('leader:gained', tell(1));
  mill.on('leader:lost', tell(-1));
  const { sql } = await built('postgres');
  const isSlow = WAITS && kind === 'postgres';
  const filter = isSlow
    ? { filter: sql`pg_sleep(${WAIT_MS / 1_000}::double precision + 0 * n) is not null` }
    : {};
  await mill.reactiveTask({ task: 't', collection: 'docs', ...filter, handler: () => undefined });
  await mill.start({ roles: ['plan'] });
}

async function started(kind: Kind, url: string, processes: number): Promise<readonly ChildProcess[]> {
  const led = new Map<ChildProcess, number>();
  const children = Array.from({ length: processes }, () => {
    const settings = [kind, url, String(processes), ...(WAITS ? ['--waits'] : [])];
    const child = fork(fileURLToPath(import.meta.url), settings, { execArgv: ['--import', 'tsx'] });
    child.on('message', (count) => led.set(child, Number(count)));
    return child;
  });
  while (!children.every((child) => led.get(child) === 1)) await sleep(50);
  // The first reconciliation, of nothing, is over.
  await sleep(3_000);
  return children;
}

async function measured(kind: Kind, place: Place, processes: number): Promise<object> {
  const children = await started(kind, place.url, processes);
  const cpu = (): readonly number[] => [place.pid, ...children.map(({ pid }) => pid)].map(cpuSeconds);
  try {
    for (const child of children) child.kill('SIGSTOP');
    await place.write();
    const before = cpu();
    const began = nanos();
    for (const child of children) child.kill('SIGCONT');
    while ((await place.planned()) < DOCUMENTS) await sleep(50);
    const seconds = sinceMs(began) / 1_000;
    const [server = NaN, ...planners] = cpu().map((after, at) => after - (before[at] ?? NaN));
    return {
      processes,
      'changes/s': round(DOCUMENTS / seconds),
      seconds: round(seconds, 2),
      'CPU s of each planner': planners.map((used) => round(used, 2)).join(' + '),
      'CPU s of the server': round(server, 2),
    };
  } finally {
    for (const child of children) child.kill('SIGKILL');
  }
}

async function onMongo(uri: string, pid: number | undefined, database: string): Promise<Place> {
  const url = Object.assign(new URL(uri), { pathname: `/${database}` }).href;
  const client = await new MongoClient(url).connect();
  const docs = client.db().collection('docs');
  // A statement plans a thousand documents.
  const data = {
    failCommands: ['aggregate'],
    blockConnection: true,
    blockTimeMS: 1_000 * WAIT_MS,
    namespace: `${database}.docs`,
  };
  const documents = Array.from({ length: DOCUMENTS }, (_, _id) => ({ _id: _id as never, n: _id }));
  return {
    url,
    pid,
    write: async () => {
      if (WAITS)
        await client.db('admin').command({ configureFailPoint: 'failCommand', mode: 'alwaysOn', data });
      await docs.insertMany(documents, { ordered: false });
    },
    planned: () => client.db().collection('docs_tasks').estimatedDocumentCount(),
    close: () => client.close(),
  };
}

async function onPostgres(server: string, database: string): Promise<Place> {
  await once(server, `create database ${database}`);
  const asked = `select split_part(pg_read_file('postmaster.pid'), chr(10), 1) as pid`;
  const [postmaster] = await once<{ pid: string }>(server, asked);
  const url = Object.assign(new URL(server), { pathname: `/${database}` }).href;
  await once(url, 'create table docs (id integer primary key, n integer)');
  return {
    url,
    pid: Number(postmaster?.pid),
    write: () => once(url, `insert into docs select n, n from generate_series(1, ${String(DOCUMENTS)}) n`),
    planned: async () => {
      const counting = 'select count(*)::integer as count from tidemill.tasks';
      const [row] = await once<{ count: number }>(url, counting);
      return row?.count ?? 0;
    },
    close: () => Promise.resolve(),
  };
}

const [kind, url, partitions] = process.argv.slice(2).filter((flag) => !flag.startsWith('--'));
if (kind === 'mongodb' || kind === 'postgres') await plan(kind, url ?? '', Number(partitions));
else {
  await using mongo = await startMongo(WAITS ? { failPoints: true } : {});
  await using postgres = await startPostgres();
  const rows: object[] = [];
  for (const processes of [1, 2, 4])
    for (const store of ['mongodb', 'postgres'] as const) {
      const database = `planners_${String(processes)}`;
      const place = await (store === 'mongodb'
        ? onMongo(mongo.uri, mongo.members[0]?.pid, database)
        : onPostgres(postgres.url, database));
      try {
        rows.push({ store, ...(await measured(store, place, processes)) });
        console.error(JSON.stringify(rows.at(-1)));
      } finally {
        await place.close();
      }
    }
  console.table(rows);
  record(WAITS ? 'planners-waits' : 'planners', { rows }, QUICK);
  process.exit(0);
}
