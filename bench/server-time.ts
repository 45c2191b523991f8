/**
 * What MongoDB's server spends: per job and phase with several sets of indexes, per claim with up to a hundred
 * claimers, and per write with up to a hundred idle instances. All of it in one run, on the store's own statements.
 *
 *     tsx bench/server-time.ts [enqueues] [indexes] [claimers] [idle] [--quick]
 */
import { startMongo } from '@tidemill/servers';
import { MongoClient, type Document } from 'mongodb';
import { createIndexes, jobIndexes, type IndexPlan } from '../src/mongodb/indexes.js';
import { mongodb, type MongodbStore } from '../src/mongodb/index.js';
import { Tidemill } from '../src/index.js';
import { leaseOf, type ClaimAnswer, type NewJob } from '../src/store/port.js';
import { cpuSeconds } from './lib/cpu.js';
import { record } from './lib/report.js';
import { round } from './lib/stats.js';

const QUICK = process.argv.includes('--quick');
const JOBS = QUICK ? 8_000 : 20_000;
const BATCH = 500;
const ROUNDS = QUICK ? 2 : 3;
/** Jobs per claim, with many claimers. */
const SIZES = QUICK ? [20] : [20, 100];
const CALLS = QUICK ? 400 : 1_000;
const WARM_UP = 100;
const DAY_MS = 86_400_000;

const asked = process.argv.slice(2).filter((one) => !one.startsWith('--'));
const wants = (section: string): boolean => asked.length === 0 || asked.includes(section);

await using server = await startMongo();
const pid = server.members[0]?.pid;
const client = await new MongoClient(server.uri).connect();
let serial = 0;

const plans = jobIndexes(false);
/** The three that list jobs had these keys before, over all jobs. */
const BEFORE: readonly IndexPlan[] = [
  ...plans.filter(({ name }) => /_(?:claim|due|unique|held|schedules|expiry)$/u.test(name)),
  { name: 'tidemill_by_name', key: { name: 1, status: 1, createdAt: -1, _id: -1 } },
  { name: 'tidemill_by_status', key: { status: 1, updatedAt: -1, _id: -1 } },
  { name: 'tidemill_by_age', key: { createdAt: -1, _id: -1 } },
];
const INDEXES: Readonly<Record<string, readonly IndexPlan[]>> = {
  before: BEFORE,
  now: plans,
  'claim and holder only': plans.filter(({ name }) => /_(?:claim|due|held)$/u.test(name)),
};

interface Place {
  readonly store: MongodbStore;
  readonly database: string;
}

async function opened(
  indexes: readonly IndexPlan[],
  database = `bench_${String((serial += 1))}`,
): Promise<Place> {
  await createIndexes(client.db(database).collection('tidemill_jobs'), indexes);
  const store = mongodb({ uri: server.uri, database, createIndexes: 'unchecked' });
  await store.acquire(store);
  return { store, database };
}

async function closed({ store, database }: Place): Promise<void> {
  await store.release(store);
  await client.db(database).dropDatabase();
}

function batch(count = BATCH): NewJob[] {
  const now = new Date();
  const job = {
    name: 'noop',
    data: { n: 1 },
    status: 'pending',
    priority: 0,
    nextRunAt: now,
    createdAt: now,
  } as const;
  return Array.from({ length: count }, () => job);
}

async function claim(store: MongodbStore, life: string, rank = 0, of = 1, max = BATCH): Promise<ClaimAnswer> {
  const instance = { instanceId: life, life };
  const token = `${life}.${String((serial += 1))}`;
  const limits = new Map([['noop', { max, rank, of }]]);
  return store.jobs.claim({ instance, token, heartbeatMs: 10_000, limits, total: max });
}

async function settle(store: MongodbStore, jobs: ClaimAnswer['jobs']): Promise<void> {
  const finishedAt = new Date();
  const set = { finishedAt, expiresAt: new Date(finishedAt.getTime() + DAY_MS), result: null };
  const entry = { startedAt: finishedAt, finishedAt, outcome: 'completed' } as never;
  const ended = { status: 'completed', set, historyLimit: 5, by: 'holder', entry } as const;
  if (jobs.length > 0) await store.jobs.settle(jobs.map((job) => ({ ...ended, lease: leaseOf(job) })));
}

/** CPU of the server, in µs per job. */
async function costOf(jobs: number, work: () => Promise<void>): Promise<number> {
  await client.db('admin').command({ fsync: 1 });
  const before = cpuSeconds(pid);
  await work();
  return ((cpuSeconds(pid) - before) * 1e6) / jobs;
}

async function phases(indexes: readonly IndexPlan[]): Promise<number[]> {
  const place = await opened(indexes);
  const { store } = place;
  const insert = await costOf(JOBS, async () => {
    for (let n = 0; n < JOBS; n += BATCH) await store.jobs.insert(batch());
  });
  const held: ClaimAnswer[] = [];
  const claiming = await costOf(JOBS, async () => {
    for (let n = 0; n < JOBS; n += BATCH) held.push(await claim(store, 'bench'));
  });
  const settling = await costOf(JOBS, async () => {
    for (const { jobs } of held) await settle(store, jobs);
  });
  const { indexSizes = {} } = (await client.db(place.database).command({ collStats: 'tidemill_jobs' })) as {
    indexSizes?: Record<string, number>;
  };
  const bytes = Object.values(indexSizes).reduce((sum, size) => sum + size, 0) / JOBS;
  await closed(place);
  return [insert, claiming, settling, insert + claiming + settling, bytes];
}

const median = (values: readonly number[]): number =>
  [...values].sort((a, b) => a - b)[values.length >> 1] ?? NaN;
const printed: {
  readonly head: readonly string[];
  readonly rows: readonly (readonly (string | number)[])[];
}[] = [];
function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): void {
  printed.push({ head, rows });
  console.log([head, head.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n'), '\n');
}

async function indexes(): Promise<void> {
  const runs = new Map(Object.keys(INDEXES).map((name) => [name, [] as number[][]]));
  for (let turn = 0; turn < ROUNDS; turn += 1)
    for (const [name, set] of Object.entries(INDEXES)) runs.get(name)?.push(await phases(set));
  const head = ['indexes', 'insert µs/job', 'claim', 'settle', 'sum', 'index bytes/job'];
  table(
    head,
    [...runs].map(([name, all]) => [
      name,
      ...head.slice(1).map((_column, at) => round(median(all.map((one) => one[at] ?? NaN)), 0)),
    ]),
  );
}

interface ServerStatus {
  readonly metrics: {
    readonly operation: { readonly writeConflicts: number };
    readonly queryExecutor: { readonly scanned: number };
  };
}

async function counters(): Promise<{ readonly conflicts: number; readonly keys: number }> {
  const status: unknown = await client.db('admin').command({ serverStatus: 1 });
  const { operation, queryExecutor } = (status as ServerStatus).metrics;
  return { conflicts: operation.writeConflicts, keys: queryExecutor.scanned };
}

/** All claim at once, `size` each, until nothing is left. Each has its own token, rank and connection. */
async function race(claimers: number, size: number, of = claimers): Promise<(string | number)[]> {
  const place = await opened(INDEXES['now'] ?? []);
  const { store } = place;
  for (let n = 0; n < JOBS; n += 1_000) await store.jobs.insert(batch(1_000));
  const many = await new MongoClient(server.uri, { maxPoolSize: 200, minPoolSize: claimers }).connect();
  const stores = Array.from({ length: claimers }, () =>
    mongodb({ client: many, database: place.database, createIndexes: 'unchecked' }),
  );
  for (const one of stores) await one.acquire(one);
  const before = await counters();
  let [claims, short, asked, left] = [0, 0, 0, JOBS];
  const began = performance.now();
  const cpu = await costOf(JOBS, async () => {
    await Promise.all(
      stores.map(async (own, rank) => {
        while (left > 0) {
          const answer = await claim(own, `life${String(rank).padStart(12, '0')}`, rank, of, size);
          claims += 1;
          asked += answer.asked;
          if (answer.jobs.length < Math.min(size, left)) short += 1;
          left -= answer.jobs.length;
          if (answer.jobs.length === 0 && !answer.more) return;
        }
      }),
    );
  });
  const seconds = (performance.now() - began) / 1_000;
  const after = await counters();
  await Promise.all(stores.map((one) => one.release(one)));
  await many.close();
  const figures = [
    round((claims * size) / JOBS, 2),
    short,
    round(asked / JOBS, 2),
    after.conflicts - before.conflicts,
    round((after.keys - before.keys) / JOBS, 1),
    round(cpu, 0),
    round(JOBS / seconds, 0),
    left,
  ];
  await closed(place);
  return figures;
}

async function claimers(): Promise<void> {
  const rows = [];
  for (const size of SIZES)
    for (const count of [1, 2, 4, 10, 50, 100]) {
      // Told that they are four, instances stay at the head of the queue.
      if (count > 4) rows.push([count, size, 'at the head', ...(await race(count, size, 4))]);
      rows.push([count, size, 'windows', ...(await race(count, size))]);
    }
  table(
    [
      'claimers',
      'batch',
      'where',
      'claims, ideal 1',
      'short',
      'asked per job',
      'conflicts',
      'keys/job',
      'server µs/job',
      'jobs/s',
      'left',
    ],
    rows,
  );
}

type Listen = (database: string, each: MongoClient) => () => Promise<void>;
const AWAIT = { maxAwaitTimeMS: 10_000 };

/** Ways to hear of new work. */
const LISTEN: Readonly<Record<string, Listen>> = {
  'stream on the database': (database, each) => {
    const match = {
      'ns.coll': 'tidemill_jobs',
      operationType: 'insert',
      'fullDocument.wake': { $exists: true },
    };
    const stream = each.db(database).watch([{ $match: match }], AWAIT);
    const reading = (async () => {
      for (;;) await stream.next();
    })().catch(() => undefined);
    return async () => {
      await stream.close();
      await reading;
    };
  },
  'stream on a small collection': (database, each) => {
    const stream = each.db(database).collection('wakes').watch([], AWAIT);
    const reading = (async () => {
      for (;;) await stream.next();
    })().catch(() => undefined);
    return async () => {
      await stream.close();
      await reading;
    };
  },
  'tailable cursor on a capped collection': (database, each) => {
    const cursor = each
      .db(database)
      .collection('capped')
      .find({}, { tailable: true, awaitData: true, ...AWAIT });
    const reading = (async () => {
      for (;;) if ((await cursor.next()) === null) return;
    })().catch(() => undefined);
    return async () => {
      await cursor.close();
      await reading;
    };
  },
};

/** Server µs per job that goes through in batches of 100, while `instances` listen. */
async function heard(way: string | undefined, instances: number): Promise<number> {
  const place = await opened(INDEXES['now'] ?? []);
  const { store, database } = place;
  await client.db(database).createCollection('capped', { capped: true, size: 1 << 20 });
  await client.db(database).collection('capped').insertOne({});
  await client.db(database).collection('wakes').insertOne({});
  const many = await new MongoClient(server.uri, { maxPoolSize: 200 }).connect();
  const listening =
    way === undefined ? [] : Array.from({ length: instances }, () => LISTEN[way]?.(database, many));
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  const jobs = JOBS / 4;
  const cpu = await costOf(jobs, async () => {
    for (let n = 0; n < jobs; n += 100) {
      await store.jobs.insert(batch(100));
      await settle(store, (await claim(store, 'bench', 0, 1, 100)).jobs);
    }
  });
  for (const end of listening) await end?.();
  await many.close();
  await closed(place);
  return cpu;
}

async function idle(): Promise<void> {
  const none = round(await heard(undefined, 0), 0);
  const rows: (string | number)[][] = [['none', none, none, none]];
  for (const way of Object.keys(LISTEN)) {
    const row: (string | number)[] = [way];
    for (const instances of [1, 10, 100]) row.push(round(await heard(way, instances), 0));
    rows.push(row);
  }
  table(['server µs per job, while instances listen', '1', '10', '100'], rows);
}

/** One call after the other, in turns: the driver alone, the store, and the whole way of `enqueue`. */
async function enqueues(): Promise<void> {
  const place = await opened(plans);
  const { store, database } = place;
  const raw = client.db(database).collection('raw', { writeConcern: { w: 'majority' } });
  const same = client.db(database).collection('same', { writeConcern: { w: 'majority' } });
  await createIndexes(same, plans);
  const mill = new Tidemill({
    store: mongodb({ client, database, createIndexes: 'unchecked' }),
    logger: false,
  });
  const document = (): Document => {
    const { status, ...rest } = batch(1)[0]!;
    return { v: 1, status, lockedAt: null, failCount: 0, updatedAt: rest.createdAt, ...rest };
  };
  const ways: Readonly<Record<string, () => Promise<unknown>>> = {
    'insertOne, no index': () => raw.insertOne(document()),
    'insertOne, same indexes': () => same.insertOne(document()),
    'insertMany of one, same indexes': () => same.insertMany([document()], { ordered: false }),
    'store.insert of one': () => store.jobs.insert(batch(1)),
    enqueue: () => mill.enqueue('noop', { n: 1 }),
  };
  const spent = new Map(Object.keys(ways).map((name) => [name, [] as number[]]));
  for (let turn = 0; turn < WARM_UP + CALLS; turn += 1)
    for (const [name, way] of Object.entries(ways)) {
      const began = performance.now();
      await way();
      if (turn >= WARM_UP) spent.get(name)?.push(performance.now() - began);
    }
  table(
    ['one after the other', 'median ms', 'mean ms'],
    [...spent].map(([name, all]) => [
      name,
      round(median(all), 3),
      round(all.reduce((sum, one) => sum + one, 0) / all.length, 3),
    ]),
  );
  await mill.stop();
  await closed(place);
}

try {
  if (wants('enqueues')) await enqueues();
  if (wants('indexes')) await indexes();
  if (wants('claimers')) await claimers();
  if (wants('idle')) await idle();
  record('server-time', { tables: printed }, QUICK || asked.length > 0);
} finally {
  await client.close();
}
