import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
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

function runCli(name: string): ChildProcess {
  // Its own temporary folder, so that a test sees what was left behind; its own server, so no MONGODB_URI.
  const env = { ...process.env, TMPDIR: temporary, MONGODB_URI: '' };
  const args = ['--import', 'tsx', 'servers/src/cli.ts', name];
  return spawn(process.execPath, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'ignore'] });
}

async function portIn(cli: ChildProcess): Promise<number> {
  const [line] = (await once(cli.stdout!, 'data')) as [Buffer];
  return Number(new URL(line.toString().trim()).port);
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
  const port = await portIn(cli);
  expect(await listens(port)).toBe(true);
  cli.kill('SIGINT');
  expect(await once(cli, 'exit')).toEqual([0, null]);
  expect(await listens(port)).toBe(false);
  expect(await readdir(temporary).then(serverFolders)).toEqual([]);
});

it(
  'the servers command leaves no server and no folder behind, even when it is killed',
  { timeout },
  async () => {
    const cli = runCli('mongodb');
    const port = await portIn(cli);
    cli.kill('SIGKILL');
    await vi.waitFor(async () => {
      expect(await listens(port)).toBe(false);
      expect(await readdir(temporary).then(serverFolders)).toEqual([]);
    }, 40_000);
  },
);

it('the servers command exits with code 2 for an unknown server', { timeout }, async () => {
  const cli = runCli('oracle');
  expect(await once(cli, 'exit')).toEqual([2, null]);
});

/** tsx keeps a cache in the same place. */
function serverFolders(names: string[]): string[] {
  return names.filter((name) => name.startsWith('tidemill-'));
}
