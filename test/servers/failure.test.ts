import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ServerError, startMongo } from '@tidemill/servers';
import { expect, it, vi } from 'vitest';

const timeout = 60_000;

async function listenOn(port: number): Promise<Server> {
  const server = createServer().listen(port, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

it('startMongo says that the data folder cannot be created, and how to fix it', { timeout }, async () => {
  const folder = await mkdtemp(join(tmpdir(), 'tidemill-test-'));
  const file = join(folder, 'not-a-folder');
  await writeFile(file, '');
  try {
    const failure = await startMongo({ dbPath: join(file, 'data') }).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(ServerError);
    expect(String(failure)).toMatch(
      /data folder .*ENOTDIR.*To fix it: name a data folder that you can write to/s,
    );
  } finally {
    await rm(folder, { recursive: true });
  }
});

it("restart passes on mongod's error about a taken port, and how to fix it", { timeout }, async () => {
  await using server = await startMongo({ standalone: true });
  const member = await server.primary();
  member.kill('SIGKILL');
  // The killed process holds the port a little longer than the signal takes.
  const squatter = await vi.waitFor(() => listenOn(member.port), 40_000);
  try {
    const failure = await member.restart().catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(ServerError);
    expect(String(failure)).toMatch(/Address already in use.*To fix it: end whoever holds the port/s);
  } finally {
    squatter.close();
  }
});

it('startMongo rejects a standalone of three nodes', async () => {
  await expect(startMongo({ standalone: true, nodes: 3 })).rejects.toThrow(ServerError);
});
