import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MongoClient } from 'mongodb';
import { startMongo } from '@tidemill/servers';
import { afterEach, expect, it, vi } from 'vitest';

const timeout = 60_000;

afterEach(() => {
  vi.unstubAllEnvs();
});

it('startMongo accepts writes at once and reports them in a change stream', { timeout }, async () => {
  await using server = await startMongo();
  await using client = await MongoClient.connect(server.uri);
  const notes = client.db('first').collection<{ text: string }>('notes');
  await notes.insertOne({ text: 'before the stream' });
  await using changes = notes.watch();
  const change = changes.next();
  // The cursor opens with the first read, and sees nothing from before; so writing goes on until it sees one.
  const writing = setInterval(() => void notes.insertOne({ text: 'hello' }).catch(() => undefined), 50);
  const seen = await change.finally(() => {
    clearInterval(writing);
  });
  expect(seen).toMatchObject({ operationType: 'insert', fullDocument: { text: 'hello' } });
});

it(
  'startMongo keeps the data of a named folder when it starts again on another port',
  { timeout },
  async () => {
    const dbPath = await mkdtemp(join(tmpdir(), 'tidemill-test-'));
    try {
      const ports = [];
      for (const round of [1, 2]) {
        await using server = await startMongo({ dbPath });
        await using client = await MongoClient.connect(server.uri);
        const rounds = client.db('kept').collection('rounds');
        await rounds.insertOne({ round });
        expect(await rounds.countDocuments()).toBe(round);
        ports.push((await server.primary()).port);
      }
      expect(new Set(ports).size).toBe(2);
    } finally {
      await rm(dbPath, { recursive: true });
    }
  },
);

it('startMongo with auth rejects clients that are not signed in', { timeout }, async () => {
  await using server = await startMongo({ auth: true });
  await using client = await MongoClient.connect(server.uri);
  await client.db('kept').collection('notes').insertOne({});
  await using stranger = await MongoClient.connect(server.uri.replace(/root:.*@/u, ''));
  await expect(stranger.db('kept').collection('notes').findOne()).rejects.toThrow(/requires authentication/u);
});

it('startMongo with standalone starts no replica set', { timeout }, async () => {
  await using server = await startMongo({ standalone: true });
  await using client = await MongoClient.connect(server.uri);
  const hello = await client.db('admin').command({ hello: 1 });
  expect(hello).toMatchObject({ isWritablePrimary: true });
  expect(hello).not.toHaveProperty('setName');
});

it('startMongo uses the server that MONGODB_URI names, and leaves it running', async () => {
  vi.stubEnv('MONGODB_URI', 'mongodb://somewhere.example:27017/');
  const server = await startMongo();
  expect(server.uri).toBe('mongodb://somewhere.example:27017/');
  expect(server.members).toEqual([]);
  await expect(server.primary()).rejects.toThrow('unset MONGODB_URI');
  await server.stop();
});

it('startMongo with special options starts its own server despite MONGODB_URI', { timeout }, async () => {
  vi.stubEnv('MONGODB_URI', 'mongodb://somewhere.example:27017/');
  await using server = await startMongo({ standalone: true });
  expect(server.uri).toContain('127.0.0.1');
});
