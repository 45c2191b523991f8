/** The long form: `npm run chaos -- --minutes 10 --nodes 3 --jobs 20000`, or `-- --reactive --minutes 10`. */
import { parseArgs } from 'node:util';
import { startMongo } from '@tidemill/servers';
import { runChaos, TRANSACTION_SECONDS } from './chaos.js';
import { runReactiveChaos } from './reactive-chaos.js';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '5' },
    nodes: { type: 'string', default: '3' },
    workers: { type: 'string', default: '4' },
    jobs: { type: 'string' },
    reactive: { type: 'boolean', default: false },
    documents: { type: 'string', default: '500' },
  },
});
const harmMs = Number(values.minutes) * 60_000;
const server = await startMongo({
  nodes: values.nodes === '1' ? 1 : 3,
  transactionSeconds: TRANSACTION_SECONDS,
});
const workers = Number(values.workers);

async function jobChaos(): Promise<boolean> {
  const jobs = Number(values.jobs ?? Math.round(harmMs / 15));
  console.log(
    `${values.workers} workers, ${String(jobs)} jobs, ${values.minutes} minutes of harm on ${values.nodes} node(s)`,
  );
  const report = await runChaos({ server, workers, jobs, harmMs });
  console.log(JSON.stringify(report, null, 2));
  return (
    report.violations.length === 0 &&
    report.unfinished.length === 0 &&
    report.completed === report.accepted &&
    report.exact.effects === report.exact.jobs
  );
}

async function reactiveChaos(): Promise<boolean> {
  const documents = Number(values.documents);
  console.log(
    `${values.workers} workers, ${values.documents} documents, ${values.minutes} minutes of harm on ${values.nodes} node(s)`,
  );
  const report = await runReactiveChaos({ server, workers, documents, harmMs });
  console.log(JSON.stringify(report, null, 2));
  return report.unhandled.length === 0 && report.stuck.length === 0;
}

const kept = await (values.reactive ? reactiveChaos() : jobChaos());
await server.stop();
console.log(kept ? 'All promises were kept.' : 'PROMISES WERE BROKEN.');
process.exit(kept ? 0 : 1);
