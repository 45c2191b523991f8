/**
 * The long form: `npm run chaos -- --minutes 10 --nodes 3 --jobs 20000`, or `-- --store postgres --minutes 10`;
 * `--reactive` runs tasks instead of jobs, on either store; `--partitions 2,3` with that many planners, one number after
 * the other.
 */
import { parseArgs } from 'node:util';
import { startMongo, startPostgres } from '@tidemill/servers';
import { runChaos } from './chaos.js';
import type { ChaosDatabase } from './chaos-database.js';
import { mongodbDatabase, MONGO_SETTINGS } from './mongodb-database.js';
import { postgresDatabase, POSTGRES_SETTINGS } from './postgres-database.js';
import { runReactiveChaos } from './reactive-chaos.js';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '5' },
    store: { type: 'string', default: 'mongodb' },
    nodes: { type: 'string', default: '3' },
    workers: { type: 'string', default: '4' },
    jobs: { type: 'string' },
    reactive: { type: 'boolean', default: false },
    documents: { type: 'string', default: '500' },
    partitions: { type: 'string', default: '1' },
  },
});
const harmMs = Number(values.minutes) * 60_000;
const workers = Number(values.workers);

async function jobChaos(database: ChaosDatabase): Promise<boolean> {
  const jobs = Number(values.jobs ?? Math.round(harmMs / 15));
  const report = await runChaos({ database, workers, jobs, harmMs });
  console.log(JSON.stringify(report, null, 2));
  return (
    report.violations.length === 0 &&
    report.unfinished.length === 0 &&
    report.completed === report.accepted &&
    report.exact.effects === report.exact.jobs &&
    report.exact.distinct === report.exact.jobs
  );
}

async function reactiveChaos(database: ChaosDatabase): Promise<boolean> {
  const report = await runReactiveChaos({
    database,
    workers,
    documents: Number(values.documents),
    harmMs,
    partitions: values.partitions.split(',').map(Number),
  });
  console.log(JSON.stringify(report, null, 2));
  const { unhandled, stuck, twice, violations } = report;
  return [unhandled, stuck, twice, violations].every(({ length }) => length === 0);
}

const stores: Readonly<Record<string, (chaos: typeof jobChaos) => Promise<boolean>>> = {
  mongodb: async (chaos) => {
    const nodes = values.nodes === '1' ? 1 : 3;
    await using server = await startMongo({ nodes, ...MONGO_SETTINGS });
    return await chaos(await mongodbDatabase(server));
  },
  postgres: async (chaos) => {
    await using server = await startPostgres({ settings: POSTGRES_SETTINGS });
    return await chaos(await postgresDatabase(server));
  },
};

const store = stores[values.store];
if (store === undefined) throw new Error(`--store is one of ${Object.keys(stores).join(', ')}`);
const what = values.reactive ? 'reactive tasks' : 'jobs';
console.log(`${what}: ${values.workers} workers, ${values.minutes} minutes of harm on ${values.store}`);
const kept = await store(values.reactive ? reactiveChaos : jobChaos);
console.log(kept ? 'All promises were kept.' : 'PROMISES WERE BROKEN.');
process.exit(kept ? 0 : 1);
