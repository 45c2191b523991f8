import { relative } from 'node:path';
import { parseArgs } from 'node:util';
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { CONTENDERS, type ContenderName } from './contenders/contender.js';
import type { Bench, Row } from './lib/bench.js';
import { chosen } from './lib/flags.js';
import { circumstances, tables, write } from './lib/report.js';
import { targets, targetTable } from './lib/targets.js';
import { documentsIdle, documentsProcessing } from './measure/documents.js';
import { enqueueing } from './measure/enqueueing.js';
import { fullCollection } from './measure/full.js';
import { idle } from './measure/idle.js';
import { latency } from './measure/latency.js';
import { reactiveIdle } from './measure/reactive/idle.js';
import { reactiveLatency } from './measure/reactive/latency.js';
import { reactivePlanner } from './measure/reactive/planner.js';
import { reactiveThroughput } from './measure/reactive/throughput.js';
import { backlog, severalProcesses, throughput } from './measure/throughput.js';

const SECTIONS = {
  processing: throughput,
  processes: severalProcesses,
  backlog,
  full: fullCollection,
  enqueueing,
  latency,
  idle,
  'documents-processing': documentsProcessing,
  'documents-idle': documentsIdle,
  'reactive-tasks': reactiveThroughput,
  'reactive-latency': reactiveLatency,
  'reactive-planner': reactivePlanner,
  'reactive-idle': reactiveIdle,
};

const { values: flags } = parseArgs({
  options: {
    /** Which contenders; all by default. */
    only: { type: 'string', default: CONTENDERS.join(',') },
    /** Which sections; all by default. `reactive` stands for all of `reactive-…`, and `documents` likewise. */
    sections: { type: 'string', default: Object.keys(SECTIONS).join(',') },
    rounds: { type: 'string' },
    quick: { type: 'boolean', default: false },
    memory: { type: 'boolean', default: false },
    reconcile: { type: 'boolean', default: false },
    /** Compares settings of autovacuum for the table of jobs. */
    vacuum: { type: 'boolean', default: false },
    /** One run at scale, with flags of its own: see scale/run.ts. */
    scale: { type: 'string' },
    on: { type: 'string' },
    jobs: { type: 'string' },
    instances: { type: 'string' },
    names: { type: 'string' },
    /** Measures what a job's life writes on PostgreSQL, before and after schema version 8. */
    writes: { type: 'boolean', default: false },
    /** Plans with 1, 10 and 100 tasks on one collection. */
    'many-tasks': { type: 'boolean', default: false },
    /** Plans a backlog with one, two and four processes; `--waits`: each statement waits at the server. */
    planners: { type: 'boolean', default: false },
    waits: { type: 'boolean', default: false },
    /** What limits cost, on both databases; `--on mongodb` or `--on postgres`: on one. */
    limits: { type: 'boolean', default: false },
    /** Queues without a server: the embedded store beside PGlite itself and queues in SQLite. */
    embedded: { type: 'boolean', default: false },
    /** Runs on PostgreSQL, with its own contenders and sections. */
    postgres: { type: 'boolean', default: false },
  },
});

const SECTION_NAMES = Object.keys(SECTIONS) as (keyof typeof SECTIONS)[];

/** Expands `reactive` to all of `reactive-…`, and `documents` likewise. */
const expanded = (given: string): string =>
  given
    .split(',')
    .flatMap((name) => {
      const group = SECTION_NAMES.filter((one) => one.startsWith(`${name.trim()}-`));
      return group.length > 0 ? group : [name];
    })
    .join(',');

function makeBench(
  uri: string,
  client: MongoClient,
  serverPid: number | undefined,
  only: readonly ContenderName[],
  allSections: boolean,
): Bench {
  const rows: Row[] = [];
  let databases = 0;
  return {
    uri,
    client,
    serverPid,
    quick: flags.quick,
    complete: !flags.quick && only.length === CONTENDERS.length && allSections,
    rounds: Number(flags.rounds ?? (flags.quick ? 1 : 3)),
    rows,
    wants: (contender) => only.includes(contender),
    within: async (work) => {
      databases += 1;
      const database = `bench_${databases}`;
      try {
        return await work(database);
      } finally {
        await client.db(database).dropDatabase();
      }
    },
    settle: async () => {
      await client.db('admin').command({ fsync: 1 });
    },
    add: (row) => {
      rows.push(row);
      console.error(`${row.section}: ${row.contender} ${row.variant} ${JSON.stringify(row.figures)}`);
    },
  };
}

async function main(): Promise<void> {
  const only = chosen('only', flags.only, CONTENDERS);
  const sections = chosen('sections', expanded(flags.sections), SECTION_NAMES);
  await using server = await startMongo();
  const client = await new MongoClient(server.uri).connect();
  try {
    const bench = makeBench(
      server.uri,
      client,
      server.members[0]?.pid,
      only,
      sections.length === SECTION_NAMES.length,
    );
    const began = new Date();
    for (const section of sections) await SECTIONS[section](bench);
    const judged = targets(bench.rows);
    const file = write(bench, {
      began,
      ended: new Date(),
      ...(await circumstances(bench)),
      targets: judged,
      rows: bench.rows,
    });
    console.log(
      `${tables(bench.rows)}\n\n${targetTable(judged)}\n\nraw figures: ${relative(process.cwd(), file)}`,
    );
  } finally {
    await client.close();
  }
}

if (flags.memory) await import('./memory.js');
else if (flags.reconcile) await import('./reconcile.js');
else if (flags.vacuum) await import('./vacuum.js');
else if (flags.scale !== undefined) await import('./scale/run.js');
else if (flags.writes) await import('./writes.js');
else if (flags['many-tasks']) await import('./many-tasks.js');
else if (flags.planners) await import('./planners.js');
else if (flags.limits) await import('./limits.js');
else if (flags.embedded) await import('./embedded.js');
else if (flags.postgres) await import('./postgres.js');
else await main();
