/**
 * Reconciles a million documents that were never planned, and once more when nothing has changed. Takes minutes; run
 * it alone.
 */
import { parseArgs } from 'node:util';
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { SOURCE, type ReactiveName } from './contenders/reactive/contender.js';
import type { Row } from './lib/bench.js';
import { Child } from './lib/child.js';
import { described } from './lib/commands.js';
import { cpuSeconds } from './lib/cpu.js';
import { record, tables } from './lib/report.js';
import { median, round } from './lib/stats.js';
import { atLeast, targetTable } from './lib/targets.js';
import type { Pass } from './measure/reactive/tasks.js';

const { values: flags } = parseArgs({
  strict: false,
  options: { quick: { type: 'boolean', default: false }, only: { type: 'string' } },
});
const DOCUMENTS = flags.quick === true ? 50_000 : 1_000_000;
const SAMPLE_MS = flags.quick === true ? 200 : 1_000;
const DATABASE = 'reconcile';

/** mongodash reads every document when a task is new, and cannot be asked to do so again. */
const ENTRIES: readonly { contender: ReactiveName; variant: string; passes: number }[] = [
  { contender: 'raw', variant: 'chain1000', passes: 2 },
  { contender: 'tidemill', variant: 'default', passes: 2 },
  { contender: 'mongodash', variant: 'default', passes: 1 },
];

await using server = await startMongo();
const client = await new MongoClient(server.uri).connect();
const db = client.db(DATABASE);

async function fill(): Promise<void> {
  const size = 10_000;
  for (let from = 0; from < DOCUMENTS; from += size) {
    await db.collection(SOURCE).insertMany(
      Array.from({ length: size }, (_, index) => ({ data: { n: from + index } })),
      { ordered: false },
    );
    process.stderr.write(`\r${from + size} of ${DOCUMENTS} documents written`);
  }
  process.stderr.write('\n');
}

/** Drops everything but the documents, so that every contender starts from the same state. */
async function clear(): Promise<void> {
  for (const { name } of await db.listCollections().toArray())
    if (name !== SOURCE) await db.collection(name).drop();
  await client.db('admin').command({ fsync: 1 });
}

async function measured({ contender, variant, passes }: (typeof ENTRIES)[number]): Promise<Row[]> {
  const child = new Child(
    {
      uri: server.uri,
      database: DATABASE,
      contender,
      variant,
      task: 'reactive:reconcile',
      runs: false,
      debounce: 0,
      monitor: true,
      passes,
      sampleMs: SAMPLE_MS,
    },
    ['--expose-gc'],
  );
  try {
    const before = cpuSeconds(server.members[0]?.pid);
    const { value } = await child.hear<{ value: Pass[] }>('result');
    const mongodCpu = round((cpuSeconds(server.members[0]?.pid) - before) / value.length, 1);
    await child.end();
    return value.map((pass, index) => rowOf(contender, variant, index, pass, mongodCpu));
  } finally {
    child.kill();
  }
}

function rowOf(contender: ReactiveName, variant: string, index: number, pass: Pass, mongodCpu: number): Row {
  const { seconds, documentsSeconds, samples, commands } = pass;
  const heap = (from: number, to: number): number =>
    median(samples.slice(samples.length * from, samples.length * to).map(({ heapMb }) => heapMb));
  const figures = {
    pass: index === 0 ? 'first' : 'again, unchanged',
    'documents/s': round(DOCUMENTS / seconds),
    seconds,
    'of that documents, s': documentsSeconds,
    'CPU s': pass.cpuSeconds,
    'mongod CPU s, mean of passes': mongodCpu,
    'heap MB, second tenth': heap(0.1, 0.2),
    'heap MB, last tenth': heap(0.9, 1),
    'greatest heap MB': Math.max(...samples.map(({ heapMb }) => heapMb)),
    'greatest resident MB': Math.max(...samples.map(({ rssMb }) => rssMb)),
    commands: described(commands),
  };
  console.error(`${contender} ${JSON.stringify(figures)}`);
  return { section: `reconciliation of ${DOCUMENTS} documents`, contender, variant, figures, runs: [pass] };
}

try {
  await fill();
  const rows: Row[] = [];
  const only = typeof flags.only === 'string' ? flags.only.split(',') : undefined;
  for (const entry of ENTRIES) {
    if (only?.includes(entry.contender) === false) continue;
    await clear();
    rows.push(...(await measured(entry)));
  }
  const figure = (contender: string, pass: string, column: string): number =>
    Number(
      rows.find((row) => row.contender === contender && row.figures['pass'] === pass)?.figures[column] ?? NaN,
    );
  const judged = ['first', 'again, unchanged'].map((pass) =>
    atLeast(
      `reconciliation at least half as fast as the raw statement over the same ids: ${pass}`,
      figure('tidemill', pass, 'documents/s') / figure('raw', pass, 'documents/s'),
      0.5,
    ),
  );
  console.log(`${tables(rows)}\n\n${targetTable(judged)}`);
  record('reconcile', { targets: judged, rows }, flags.quick === true);
} finally {
  await client.close();
}
