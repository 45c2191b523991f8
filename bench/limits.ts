/**
 * What limits cost: a backlog without limits, under each sort of them, and with 10,000 keys of which all but ten are at
 * their limit; beside pg-boss's groups and BullMQ's limiter. Runs on MongoDB and PostgreSQL; run it alone. Some minutes.
 */
import { parseArgs } from 'node:util';
import { startMongo, startPostgres } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { chosen } from './lib/flags.js';
import { LIMIT_SETTINGS } from './lib/limits.js';
import { described, machine, tables, write } from './lib/report.js';
import { tried, type Row } from './lib/bench.js';
import { median, round } from './lib/stats.js';
import { load } from './contenders/contender.js';
import { loadPostgres } from './contenders/postgres/contender.js';
import { once } from './measure/postgres/bench.js';
import { processing, type ProcessingResult } from './measure/processing.js';

interface Entry {
  readonly contender: string;
  readonly variant: string;
  readonly jobs: number;
}

/** A server on which entries run, each in a database of its own. */
interface Ground {
  readonly section: string;
  readonly uri: string;
  readonly serverPid: number | undefined;
  readonly entries: readonly Entry[];
  readonly create: (database: string) => Promise<unknown>;
  readonly settle: (database: string) => Promise<void>;
  readonly drop: (database: string) => Promise<unknown>;
}

const NAMES = ['tidemill', 'pg-boss', 'bullmq'] as const;

const { values: flags } = parseArgs({
  options: {
    limits: { type: 'boolean' },
    quick: { type: 'boolean', default: false },
    rounds: { type: 'string' },
    /** `mongodb` or `postgres`; both by default. */
    on: { type: 'string' },
    /** Which contenders; all by default. */
    only: { type: 'string', default: NAMES.join(',') },
  },
});
const only: readonly string[] = chosen('only', flags.only, NAMES);
const ROUNDS = Number(flags.rounds ?? (flags.quick ? 1 : 3));
const JOBS = flags.quick ? 4_000 : 40_000;

/** Ten at once take longer for each job. */
const tidemill: readonly Entry[] = Object.entries(LIMIT_SETTINGS).map(([variant, { concurrency }]) => ({
  contender: 'tidemill',
  variant,
  jobs: concurrency < 100 ? JOBS / 4 : JOBS,
}));
const beside: readonly Entry[] = [
  { contender: 'pg-boss', variant: 'batch500', jobs: JOBS },
  { contender: 'pg-boss', variant: 'groups', jobs: JOBS / 4 },
  { contender: 'pg-boss', variant: 'groups, 10 free', jobs: JOBS / 20 },
  { contender: 'bullmq', variant: 'jobs100', jobs: JOBS / 10 },
  { contender: 'bullmq', variant: 'jobs100 limiter', jobs: JOBS / 10 },
];

const rows: Row[] = [];
let databases = 0;

const add = (row: Row): void => {
  rows.push(row);
  console.error(`${row.section}: ${row.contender} ${row.variant} ${JSON.stringify(row.figures)}`);
};

async function run(ground: Ground, { contender, variant, jobs }: Entry): Promise<ProcessingResult> {
  const database = `limits_${String((databases += 1))}`;
  const { uri, serverPid } = ground;
  await ground.create(database);
  try {
    const settle = (): Promise<void> => ground.settle(database);
    return await processing({ uri, database, contender, variant, jobs, processes: 1, serverPid, settle });
  } finally {
    await ground.drop(database);
  }
}

/** Each entry once per round, so that a busy minute of the machine affects all of them alike. */
async function measure(ground: Ground): Promise<void> {
  const { section } = ground;
  const entries = ground.entries.filter(({ contender }) => only.includes(contender));
  const results = new Map<Entry, ProcessingResult[]>(entries.map((entry) => [entry, []]));
  for (let turn = 0; turn < ROUNDS; turn += 1)
    for (const [entry, runs] of results) {
      const { contender, variant } = entry;
      const result = await tried({ add }, { section, contender, variant }, () => run(ground, entry));
      console.error(`${section}: ${contender} ${variant}: ${String(result?.perSecond ?? 'failed')} jobs/s`);
      if (result === undefined) results.delete(entry);
      else runs.push(result);
    }
  for (const [{ contender, variant }, runs] of results) {
    const of = (figure: (one: ProcessingResult) => number): number => round(median(runs.map(figure)));
    const rates = runs.map(({ perSecond }) => perSecond);
    const figures = {
      'jobs/s': of(({ perSecond }) => perSecond),
      lowest: Math.min(...rates),
      highest: Math.max(...rates),
      jobs: runs[0]?.handled ?? 0,
      'worker CPU µs/job': of(({ workerCpuSeconds, handled }) => (workerCpuSeconds / handled) * 1e6),
      'server CPU µs/job': of(({ serverCpuSeconds, handled }) => (serverCpuSeconds / handled) * 1e6),
      note: runs.some(({ timedOut }) => timedOut) ? 'did not finish in two minutes' : '',
    };
    add({ section, contender, variant, figures, runs });
  }
}

async function onMongodb(): Promise<void> {
  await using server = await startMongo();
  const client = await MongoClient.connect(server.uri);
  await measure({
    section: 'limits, MongoDB',
    uri: server.uri,
    serverPid: server.members[0]?.pid,
    entries: tidemill,
    create: () => Promise.resolve(),
    settle: async () => {
      await client.db('admin').command({ fsync: 1 });
    },
    drop: (database) => client.db(database).dropDatabase(),
  });
  await client.close();
}

async function onPostgres(): Promise<void> {
  await using server = await startPostgres();
  const { url } = server;
  const [postmaster] = await once<{ pid: string }>(
    url,
    `select split_part(pg_read_file('postmaster.pid'), chr(10), 1) as pid`,
  );
  const within = (database: string, text: string): Promise<unknown> =>
    once(Object.assign(new URL(url), { pathname: `/${database}` }).href, text);
  await measure({
    section: 'limits, PostgreSQL',
    uri: url,
    serverPid: Number(postmaster?.pid),
    entries: [...tidemill, ...beside],
    create: (database) => once(url, `create database ${database}`),
    settle: async (database) => {
      await within(database, 'vacuum analyze');
      await within(database, 'checkpoint');
    },
    drop: (database) => once(url, `drop database ${database} with (force)`),
  });
}

const began = new Date();
if (flags.on !== 'postgres') await onMongodb();
if (flags.on !== 'mongodb') await onPostgres();
const file = write(
  { complete: !flags.quick && flags.on === undefined && only.length === NAMES.length },
  {
    began,
    ended: new Date(),
    rounds: ROUNDS,
    quick: flags.quick,
    machine: machine(),
    contenders: {
      mongodb: await described(['tidemill'], load),
      postgres: await described(['tidemill', 'pg-boss', 'bullmq'], loadPostgres),
    },
    rows,
  },
  '-limits',
);
console.log(`${tables(rows)}\n\nraw figures: ${file}`);
