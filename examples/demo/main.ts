// What `npm start` runs. Options: --seconds N ends it by itself.
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { ServerError, startMongo, type MongoServer } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { Board } from './board.js';
import { Crew } from './crew.js';
import { Screen } from './screen.js';

const WORKERS = 3;
const PRODUCERS = 2;
const REFRESH_MS = 500;
const KILL_EVERY_MS = 12_000;
const REPLACE_AFTER_MS = 2_000;

const workerFile = new URL('./worker.ts', import.meta.url);
const producerFile = new URL('./producer.ts', import.meta.url);

process.exitCode = await main();

async function main(): Promise<number> {
  const seconds = readSeconds();
  if (seconds === null) return 2;
  const end = ending(seconds);
  const screen = new Screen(process.stdout);
  screen.title(
    `Tidemill demo: ${PRODUCERS} producers and ${WORKERS} workers on a MongoDB replica set. Ctrl-C stops it cleanly.`,
  );
  try {
    await using server = await startMongo();
    await using client = await connect(server);
    await run(server.uri, client, screen, end);
    return 0;
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    console.error(`The demo needs a MongoDB server, and there is none.\n${error.message}`);
    return 1;
  }
}

async function connect({ uri }: MongoServer): Promise<MongoClient> {
  try {
    return await new MongoClient(uri, { serverSelectionTimeoutMS: 5_000 }).connect();
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    const fix = 'unset MONGODB_URI, so that the demo starts its own server, or start the one it names';
    throw new ServerError('The MongoDB server does not answer.', { why, fix, cause });
  }
}

/** How long to run; Infinity without the option, null where it is wrong. */
function readSeconds(): number | null {
  try {
    const { values } = parseArgs({ options: { seconds: { type: 'string' } } });
    const seconds = values.seconds === undefined ? Infinity : Number(values.seconds);
    if (seconds > 0) return seconds;
  } catch {
    // Said below, as for a wrong number.
  }
  console.error('Usage: npm start [-- --seconds N]');
  return null;
}

/** Aborts at Ctrl-C, at SIGTERM, or when the time is over. */
function ending(seconds: number): AbortSignal {
  const end = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => end.abort());
  if (seconds !== Infinity) setTimeout(() => end.abort(), seconds * 1000).unref();
  return end.signal;
}

async function run(uri: string, client: MongoClient, screen: Screen, end: AbortSignal): Promise<void> {
  const database = `tidemill_demo_${process.pid}`;
  const mill = new Tidemill({ store: mongodb({ client, database }), logger: false });
  const board = new Board(mill);
  const crew = new Crew({
    env: { DEMO_URI: uri, DEMO_DATABASE: database },
    report: (from, report) => board.take(from, report),
    died: (name, code) => board.tell(`${name} ended by itself (${code ?? 'killed'})`),
  });
  const startedAt = performance.now();
  await mill.jobs.stats(); // The first call makes the indexes, before anybody needs them.
  for (let i = 0; i < WORKERS; i += 1) crew.start('worker', workerFile);
  for (let i = 0; i < PRODUCERS; i += 1) crew.start('producer', producerFile);

  const accidents = setInterval(() => accident(crew, board, end), KILL_EVERY_MS);
  while (!end.aborted) {
    await board.read();
    screen.show(board.picture(crew.alive('worker'), crew.alive('producer')));
    await sleep(REFRESH_MS, undefined, { signal: end }).catch(() => undefined);
  }
  clearInterval(accidents);
  await finish(crew, board, startedAt);
  await mill.stop();
  await client.db(database).dropDatabase();
}

/** Kills a worker in the midst of its work, and brings another one in. */
function accident(crew: Crew, board: Board, end: AbortSignal): void {
  const workers = crew.alive('worker');
  const victim = workers[Math.floor(Math.random() * workers.length)];
  if (victim === undefined) return;
  crew.kill(victim);
  board.killed += 1;
  board.tell(`${victim} was killed with SIGKILL in the midst of its work`);
  setTimeout(() => {
    if (!end.aborted) board.tell(`${crew.start('worker', workerFile)} is started in its place`);
  }, REPLACE_AFTER_MS).unref();
}

/** Producers first: a worker that stops has nothing new to look at. */
async function finish(crew: Crew, board: Board, startedAt: number): Promise<void> {
  console.log('\nStopping: no new jobs, running ones go to their end …');
  await crew.stop('producer');
  await crew.stop('worker');
  await board.read();
  const { done, failed, queued, running } = board.total;
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(0);
  console.log(`Stopped after ${seconds} s: ${done} done, ${failed} failed, ${queued} left in the queue.`);
  if (running > 0)
    console.log(`${running} were in the hands of a killed worker, whose lease had not ended yet.`);
  if (board.killed > 0)
    console.log(`Workers killed: ${board.killed}. Jobs handed on after it: ${board.recovered}.`);
}
