// runs in: npm run check
//
// A database in a folder, without any server: what one process enqueued, the next one runs. `file:` is the whole
// configuration.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Tidemill } from 'tidemill';

const folder = await mkdtemp(join(tmpdir(), 'tidemill-example-'));
const url = `file:${join(folder, 'data')}`;

// The first one only asks; after `stop` the folder is free for another process.
const first = new Tidemill({ store: url });
const { id } = await first.enqueue('greet', { name: 'Ada' });
await first.stop();

const second = new Tidemill({ store: url });
second.job<{ name: string }>('greet', (job) => `hello, ${job.data.name}`);
await second.start();
const said = await second.jobs.result(id, { timeout: '20s' });
await second.stop();

assert.equal(said, 'hello, Ada');
await rm(folder, { recursive: true });
console.log(said);
