import { spawn, type ChildProcess } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PGlite } from '@electric-sql/pglite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { embedded } from '../../src/embedded/index.js';
import { Tidemill } from '../../src/index.js';
import { aMill, until } from '../support/mills.js';
import { opened } from '../support/port.js';
import { bundled } from '../support/scripts.js';
import { fillEmbeddedFolder } from '../support/stores.js';

const unused = (): never => {
  throw new Error('A refused database is not asked.');
};

let base: string;
let dir: string;
const children: ChildProcess[] = [];

beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), 'tidemill-embedded-'));
  dir = join(base, 'data');
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  await rm(base, { recursive: true, force: true });
});

/** A process with the folder open, and the lines it has printed so far. */
function holder(count: number): { child: ChildProcess; lines: () => string[] } {
  const script = bundled(new URL('./holder.ts', import.meta.url));
  const child = spawn(process.execPath, [script, dir, String(count)]);
  children.push(child);
  let text = '';
  child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (text += chunk.toString()));
  return { child, lines: () => text.split('\n').slice(0, -1) };
}

/** Resolves when all its output was read, too. */
const ended = (child: ChildProcess): Promise<unknown> =>
  new Promise((resolve) => {
    child.once('close', resolve);
  });

/** The modes of a path and of everything below it, each once. */
async function modesOf(path: string): Promise<ReadonlySet<string>> {
  const below = (await readdir(path, { recursive: true }).catch(() => [])).map((name) => join(path, name));
  const stats = await Promise.all([path, ...below].map((one) => stat(one)));
  return new Set(
    stats.map((one) => `${one.isDirectory() ? 'folder' : 'file'} ${(one.mode & 0o777).toString(8)}`),
  );
}

describe('the folder of an embedded database', () => {
  it('runs every job accepted by a killed process at the next start of its folder', async () => {
    await fillEmbeddedFolder(dir);
    const { child, lines } = holder(1_000);
    const accepted = (): number => lines().filter((line) => line.startsWith('accepted')).length;
    await until('it is in the midst of it', () => accepted() > 50);
    child.kill('SIGKILL');
    await ended(child);
    const mill = aMill(embedded({ dir }));
    const ran = new Set(lines().flatMap((line) => (line.startsWith('ran ') ? [Number(line.slice(4))] : [])));
    mill.job<number>('slow', (job) => void ran.add(job.data));
    await mill.start();
    await until(
      'all have run',
      async () => (await mill.jobs.count({ status: ['pending', 'processing'] })) === 0,
    );
    for (let n = 0; n < accepted(); n += 1) expect(ran).toContain(n);
    expect(await mill.jobs.count({ status: 'completed' })).toBeGreaterThanOrEqual(accepted());
  });

  it('refuses to open a folder in a second process, or in a second store of the same process', async () => {
    await fillEmbeddedFolder(dir);
    const { child, lines } = holder(0);
    await until('it is open', () => lines().includes('open'));
    await expect(opened(embedded({ dir }))).rejects.toThrow(
      new RegExp(`in use by process ${String(child.pid)}.*one process at a time`, 'su'),
    );
    child.kill('SIGKILL');
    await ended(child);
    const mill = aMill(embedded({ dir }));
    await mill.enqueue('x', 1);
    await expect(opened(embedded({ dir }))).rejects.toThrow('share one store object');
    await mill.stop();
    const again = aMill(`file:${dir}` as never);
    expect(await again.jobs.count()).toBe(1);
  });

  it("opens a folder whose first start died half-way, and takes over a dead process's pid file", async () => {
    const draft = `${dir}.draft-99999999`;
    await mkdir(draft, { recursive: true });
    await writeFile(join(draft, 'PG_VERSION'), '18');
    await writeFile(`${dir}.pid`, JSON.stringify({ pid: 99_999_999, began: '1' }));
    const store = await opened(embedded({ dir }));
    expect(JSON.parse(await readFile(`${dir}.pid`, 'utf8'))).toMatchObject({ pid: process.pid });
    expect(await store.jobs.count({})).toBe(0);
    expect((await readdir(base)).sort()).toEqual(['data', 'data.pid']);
  });

  it('guards the folder of a PGlite of the user, for as long as a store is open on it', async () => {
    const database = await PGlite.create(dir);
    const [one, two] = [aMill(embedded({ database })), aMill(embedded({ database, schema: 'other' }))];
    await one.enqueue('x', 1);
    await two.enqueue('x', 1);
    const { child, lines } = holder(0);
    await ended(child);
    expect(lines().join('\n')).toContain(`in use by process ${String(process.pid)}`);
    await expect(opened(embedded({ dir }))).rejects.toThrow('share one store object');
    await one.stop();
    expect(await readdir(base)).toEqual(['data', 'data.pid']);
    await two.stop();
    expect(await readdir(base)).toEqual(['data']);
    await database.close();
  });

  it('refuses a PGlite of the user on a folder that another process has open', async () => {
    const { child, lines } = holder(0);
    await until('it is open', () => lines().includes('open'));
    const database = { dataDir: dir, query: unused, listen: unused, transaction: unused };
    for (const _ of ['at first', 'again'])
      await expect(opened(embedded({ database }))).rejects.toThrow(`in use by process ${String(child.pid)}`);
  });

  it('refuses a pid file that it did not write, and leaves it unchanged', async () => {
    for (const text of ['4242\n', 'a note', '{"pid":"4242"}', 'null', '']) {
      await writeFile(`${dir}.pid`, text);
      await expect(opened(embedded({ dir }))).rejects.toThrow(`${dir}.pid is not one of Tidemill's`);
      expect(await readFile(`${dir}.pid`, 'utf8')).toBe(text);
      expect(await readdir(base)).toEqual(['data.pid']);
    }
  });

  it('restricts files to their owner under any umask, also files of an earlier version', async () => {
    const own = new Set(['folder 700', 'file 600']);
    const before = process.umask(0);
    try {
      const mill = aMill(embedded({ dir }));
      await mill.enqueue('x', 1);
      expect(await modesOf(`${dir}.pid`)).toEqual(new Set(['file 600']));
      // Enough for files that are created after the database itself.
      await mill.enqueueMany(Array.from({ length: 500 }, () => ({ name: 'x', data: 'y'.repeat(2_000) })));
      expect(await modesOf(dir)).toEqual(own);
      await mill.stop();
      expect(await modesOf(dir)).toEqual(own);

      for (const name of ['', ...(await readdir(dir, { recursive: true }))]) {
        const path = join(dir, name);
        await chmod(path, (await stat(path)).isDirectory() ? 0o755 : 0o666);
      }
      const again = aMill(embedded({ dir }));
      expect(await again.jobs.count()).toBe(501);
      expect(await modesOf(dir)).toEqual(own);
    } finally {
      process.umask(before);
    }
  });

  it('refuses a folder with other files in it, and leaves it unchanged', async () => {
    await mkdir(dir);
    await writeFile(join(dir, 'mine.txt'), 'mine');
    await expect(opened(embedded({ dir }))).rejects.toThrow('contains no database');
    expect(await readdir(base)).toEqual(['data']);
    expect(await readdir(dir)).toEqual(['mine.txt']);
  });
});

it('accepts file: and postgresql: URLs as a store', () => {
  expect(() => new Tidemill({ store: 'file:' })).toThrow("'file:./dir'");
  expect(() => new Tidemill({ store: 'file:./somewhere' })).not.toThrow();
  expect(() => new Tidemill({ store: 'postgresql://localhost/x' })).not.toThrow();
});

it.each([
  ['mongodb+srv://host/x', 'mongodb'],
  ['postgresql://localhost/x', 'postgres'],
  ['file:./somewhere', 'embedded'],
  ['embedded:', 'embedded'],
  ['memory:', 'memory'],
])('health() of a mill on %s names the kind of its store: %s', (store, kind) => {
  expect(new Tidemill({ store }).health().store).toBe(kind);
});
