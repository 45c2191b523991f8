// runs in: npm run check
//
// A producer and a worker as two processes that share a definition (jobs.ts) and a database, and nothing else.
import assert from 'node:assert/strict';
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { startMongo } from '@tidemill/servers';
import { Tidemill } from 'tidemill';

await using server = await startMongo();
const uri = server.uri.replace('/?', '/pictures?');

const start = (file: URL): ChildProcess =>
  fork(file, {
    execArgv: ['--import', 'tsx'],
    env: { ...process.env, DEMO_URI: uri },
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  });

const worker = start(new URL('./worker.ts', import.meta.url));
const producer = start(new URL('./producer.ts', import.meta.url));

const said = await text(producer.stdout!);
assert.equal(said.trim(), 'ada.png is 200 wide now');

// Everything that was asked for gets done, whoever asked.
const mill = new Tidemill({ store: uri });
const { items } = await mill.jobs.find({ name: 'resize' });
assert.equal(items.length, 3);
for (const { id } of items) await mill.jobs.result(id, { timeout: '20s' });
await mill.stop();

// A worker that is told to stop ends by itself, and so does its process.
worker.kill('SIGTERM');
assert.deepEqual(await once(worker, 'exit'), [0, null]);
console.log(said.trim());
