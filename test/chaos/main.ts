/** The long form: `npm run chaos -- --minutes 10 --nodes 3 --jobs 20000`. */
import { parseArgs } from 'node:util';
import { startMongo } from '@tidemill/servers';
import { runChaos } from './chaos.js';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '5' },
    nodes: { type: 'string', default: '3' },
    workers: { type: 'string', default: '4' },
    jobs: { type: 'string' },
  },
});
const harmMs = Number(values.minutes) * 60_000;
const server = await startMongo({ nodes: values.nodes === '1' ? 1 : 3 });
const jobs = Number(values.jobs ?? Math.round(harmMs / 15));
console.log(
  `${values.workers} workers, ${String(jobs)} jobs, ${values.minutes} minutes of harm on ${values.nodes} node(s)`,
);
const report = await runChaos({ server, workers: Number(values.workers), jobs, harmMs });
await server.stop();
console.log(JSON.stringify(report, null, 2));
const kept =
  report.violations.length === 0 &&
  report.unfinished.length === 0 &&
  report.completed === report.accepted &&
  report.exact.effects === report.exact.jobs;
console.log(kept ? 'All promises were kept.' : 'PROMISES WERE BROKEN.');
process.exit(kept ? 0 : 1);
