/**
 * The long form: `npm run chaos -- --minutes 10 --nodes 3 --jobs 20000`, `-- --store postgres --minutes 10`, or
 * `-- --reactive --minutes 10`.
 */
import { parseArgs } from 'node:util';
import { startMongo, startPostgres, type MongoServer } from '@tidemill/servers';
import { runChaos } from './chaos.js';
import type { Ground } from './ground.js';
import { mongodbGround, TRANSACTION_SECONDS } from './mongodb-ground.js';
import { postgresGround, POSTGRES_SETTINGS } from './postgres-ground.js';
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
  },
});
const harmMs = Number(values.minutes) * 60_000;
const workers = Number(values.workers);

const mongo = (): Promise<MongoServer> =>
  startMongo({ nodes: values.nodes === '1' ? 1 : 3, transactionSeconds: TRANSACTION_SECONDS });

async function jobChaos(ground: Ground): Promise<boolean> {
  const jobs = Number(values.jobs ?? Math.round(harmMs / 15));
  const report = await runChaos({ ground, workers, jobs, harmMs });
  console.log(JSON.stringify(report, null, 2));
  return (
    report.violations.length === 0 &&
    report.unfinished.length === 0 &&
    report.completed === report.accepted &&
    report.exact.effects === report.exact.jobs
  );
}

async function reactiveChaos(): Promise<boolean> {
  await using server = await mongo();
  const report = await runReactiveChaos({ server, workers, documents: Number(values.documents), harmMs });
  console.log(JSON.stringify(report, null, 2));
  return report.unhandled.length === 0 && report.stuck.length === 0;
}

async function onMongodb(): Promise<boolean> {
  await using server = await mongo();
  return await jobChaos(mongodbGround(server));
}

async function onPostgres(): Promise<boolean> {
  await using server = await startPostgres({ settings: POSTGRES_SETTINGS });
  return await jobChaos(await postgresGround(server));
}

console.log(`${values.workers} workers, ${values.minutes} minutes of harm on ${values.store}`);
const kept = await (values.reactive
  ? reactiveChaos()
  : values.store === 'postgres'
    ? onPostgres()
    : onMongodb());
console.log(kept ? 'All promises were kept.' : 'PROMISES WERE BROKEN.');
process.exit(kept ? 0 : 1);
