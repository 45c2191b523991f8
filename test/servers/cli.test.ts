import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MongoClient } from 'mongodb';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

const timeout = 60_000;
const root = fileURLToPath(new URL('../..', import.meta.url));
let temporary: string;

beforeEach(async () => {
  temporary = await mkdtemp(join(tmpdir(), 'tidemill-test-'));
});

afterEach(async () => {
  await rm(temporary, { recursive: true, force: true });
});

interface RunningCli {
  readonly child: ChildProcess;
  readonly printed: { out: string; err: string };
}

function runCli(name: string): RunningCli {
  // Its own temporary folder, so that a test sees what was left behind; its own server, so no MONGODB_URI.
  const env = { ...process.env, TMPDIR: temporary, MONGODB_URI: '' };
  const args = ['--import', 'tsx', 'servers/src/cli.ts', name];
  const child = spawn(process.execPath, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'pipe'] });
  const printed = { out: '', err: '' };
  child.stdout.on('data', (text: Buffer) => (printed.out += text.toString()));
  child.stderr.on('data', (text: Buffer) => (printed.err += text.toString()));
  return { child, printed };
}

/** Waits for the URL, and checks that a server answers there whose data is in a folder of its own. */
async function serverOf({ printed }: RunningCli): Promise<number> {
  await vi.waitFor(() => expect(printed.out).toMatch(/^mongodb:\/\/\S+\n$/u), timeout);
  const url = printed.out.trim();
  await using client = new MongoClient(url);
  expect(await client.db('admin').command({ ping: 1 })).toMatchObject({ ok: 1 });
  expect(await serverFolders()).not.toEqual([]);
  return Number(new URL(url).port);
}

async function listens(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  return once(socket, 'connect')
    .then(() => true)
    .catch(() => false)
    .finally(() => socket.destroy());
}

it('the servers command prints the URL of its server, and stops it on SIGINT', { timeout }, async () => {
  const cli = runCli('mongodb');
  const port = await serverOf(cli);
  cli.child.kill('SIGINT');
  expect(await once(cli.child, 'exit')).toEqual([0, null]);
  expect(await listens(port)).toBe(false);
  expect(await serverFolders()).toEqual([]);
});

it(
  'the servers command leaves no server and no folder behind, even when it is killed',
  { timeout },
  async () => {
    const cli = runCli('mongodb');
    const port = await serverOf(cli);
    cli.child.kill('SIGKILL');
    await vi.waitFor(async () => {
      expect(await listens(port)).toBe(false);
      expect(await serverFolders()).toEqual([]);
    }, 40_000);
  },
);

it('the servers command exits with code 2 for an unknown server and lists the known ones', async () => {
  const { child, printed } = runCli('oracle');
  expect(await once(child, 'close')).toEqual([2, null]);
  expect(printed).toEqual({
    out: '',
    err: expect.stringMatching(/^Usage: .*mongodb\|.*postgres\n$/u) as string,
  });
});

/** The folders of servers; tsx keeps a cache in the same place. */
async function serverFolders(): Promise<string[]> {
  return (await readdir(temporary)).filter((name) => !name.startsWith('tsx'));
}
