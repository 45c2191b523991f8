/** The queues on PostgreSQL, with the same flags as on MongoDB but its own contenders and sections. */
import { relative } from 'node:path';
import { parseArgs } from 'node:util';
import { startPostgres } from '@tidemill/servers';
import { loadPostgres, POSTGRES, type PostgresName } from './contenders/postgres/contender.js';
import type { Row } from './lib/bench.js';
import { chosen } from './lib/flags.js';
import { postgresTargets } from './lib/postgres-targets.js';
import { described, machine, rootVersion, tables, write } from './lib/report.js';
import { targetTable } from './lib/targets.js';
import { once, type PostgresBench } from './measure/postgres/bench.js';
import { enqueueing } from './measure/postgres/enqueueing.js';
import { finishedRows } from './measure/postgres/finished.js';
import { deadRows } from './measure/postgres/growth.js';
import { idle } from './measure/postgres/idle.js';
import { latency } from './measure/postgres/latency.js';
import { severalProcesses, throughput } from './measure/postgres/throughput.js';

const SECTIONS = {
  idle,
  growth: deadRows,
  enqueueing,
  processing: throughput,
  latency,
  processes: severalProcesses,
  finished: finishedRows,
};
const SECTION_NAMES = Object.keys(SECTIONS) as (keyof typeof SECTIONS)[];

const { values: flags } = parseArgs({
  options: {
    postgres: { type: 'boolean' },
    only: { type: 'string', default: POSTGRES.join(',') },
    sections: { type: 'string', default: SECTION_NAMES.join(',') },
    rounds: { type: 'string' },
    quick: { type: 'boolean', default: false },
  },
});

function makeBench(
  uri: string,
  serverPid: number | undefined,
  only: readonly PostgresName[],
  allSections: boolean,
): PostgresBench {
  const rows: Row[] = [];
  let databases = 0;
  const query: PostgresBench['query'] = (database, text, values) =>
    once(Object.assign(new URL(uri), { pathname: `/${database}` }).href, text, values);
  return {
    uri,
    serverPid,
    query,
    quick: flags.quick,
    complete: !flags.quick && only.length === POSTGRES.length && allSections,
    rounds: Number(flags.rounds ?? (flags.quick ? 1 : 3)),
    rows,
    wants: (contender) => only.includes(contender),
    within: async (work) => {
      databases += 1;
      const database = `bench_${databases}`;
      await query('postgres', `create database ${database}`);
      try {
        return await work(database);
      } finally {
        await query('postgres', `drop database ${database} with (force)`);
      }
    },
    add: (row) => {
      rows.push(row);
      console.error(`${row.section}: ${row.contender} ${row.variant} ${JSON.stringify(row.figures)}`);
    },
  };
}

const SHOWN = `select name, current_setting(name) as setting from unnest(array['server_version', 'fsync', 'synchronous_commit',
  'full_page_writes', 'shared_buffers', 'max_wal_size', 'autovacuum', 'autovacuum_naptime', 'jit', 'max_connections']) name`;

async function circumstances(uri: string): Promise<Record<string, unknown>> {
  const settings = await once<{ name: string; setting: string }>(uri, SHOWN);
  return {
    machine: machine(),
    versions: { node: process.version, driver: rootVersion('pg') },
    server: Object.fromEntries(settings.map(({ name, setting }) => [name, setting])),
    contenders: await described(POSTGRES, loadPostgres),
  };
}

const only = chosen('only', flags.only, POSTGRES);
const sections = chosen('sections', flags.sections, SECTION_NAMES);
await using server = await startPostgres();
const { url } = server;
const [postmaster] = await once<{ pid: string }>(
  url,
  `select split_part(pg_read_file('postmaster.pid'), chr(10), 1) as pid`,
);
const bench = makeBench(url, Number(postmaster?.pid), only, sections.length === SECTION_NAMES.length);
const began = new Date();
for (const section of sections) await SECTIONS[section](bench);
const judged = postgresTargets(bench.rows);
const { rounds, quick, rows } = bench;
const results = {
  began,
  ended: new Date(),
  rounds,
  quick,
  ...(await circumstances(url)),
  targets: judged,
  rows,
};
const file = write(bench, results, '-postgres');
console.log(`${tables(rows)}\n\n${targetTable(judged)}\n\nraw figures: ${relative(process.cwd(), file)}`);
