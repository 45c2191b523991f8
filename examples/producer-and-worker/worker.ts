// Runs the work until it is told to stop.
import { Tidemill } from 'tidemill';
import { resize } from './jobs.js';

const mill = new Tidemill({ store: process.env['DEMO_URI']! });

mill.work(resize, { concurrency: 4 }, ({ data, progress }) => {
  progress({ percent: 50 });
  return `${data.file} is ${data.width} wide now`;
});

await mill.start();
process.once('SIGTERM', () => void mill.stop());
