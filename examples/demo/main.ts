// What `npm start` runs. Options: --store says on which database, --seconds N ends it by itself.
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { ServerError } from '@tidemill/servers';
import { StoreError, Tidemill } from 'tidemill';
import { Board } from './board.js';
import type { Crew, CrewOptions } from './crew.js';
import { Parts } from './parts.js';
import { CHOICES, placeFor, type Place } from './places.js';
import { Processes } from './processes.js';
import { Screen } from './screen.js';

const WORKERS = 3;
const PRODUCERS = 2;
const REFRESH_MS = 500;
const ACCIDENT_EVERY_MS = 12_000;
const REPLACE_AFTER_MS = 2_000;

process.exitCode = await main();

async function main(): Promise<number> {
  const asked = readArguments();
  if (asked === null) return 2;
  const end = ending(asked.seconds);
  const screen = new Screen(process.stdout);
  screen.title('Tidemill demo. Ctrl-C stops it cleanly.');
  try {
    const place = await asked.open();
    try {
      introduce(place, screen);
      await run(place, screen, end);
    } finally {
      await place.leave();
    }
    return 0;
  } catch (error) {
    if (!(error instanceof ServerError || error instanceof StoreError)) throw error;
    console.error(`The demo cannot use its database.\n${error.message}`);
    return 1;
  }
}

/** Where and how long to run; null where that is not clear. */
function readArguments(): { open: () => Promise<Place>; seconds: number } | null {
  try {
    const { values } = parseArgs({
      options: { store: { type: 'string', default: 'embedded' }, seconds: { type: 'string' } },
    });
    const seconds = values.seconds === undefined ? Infinity : Number(values.seconds);
    const open = placeFor(values.store);
    if (seconds > 0 && open !== undefined) return { open, seconds };
  } catch {
    // Said below, as for a wrong value.
  }
  console.error(`Usage: npm start [-- --store STORE --seconds N]\nSTORE: ${CHOICES}`);
  return null;
}

/** Aborts at Ctrl-C, at SIGTERM, or when the time is over. */
function ending(seconds: number): AbortSignal {
  const end = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => end.abort());
  if (seconds !== Infinity) setTimeout(() => end.abort(), seconds * 1000).unref();
  return end.signal;
}

function introduce({ database: { title, inProcess } }: Place, screen: Screen): void {
  const seconds = ACCIDENT_EVERY_MS / 1000;
  screen.text(
    ...(inProcess
      ? [
          `${PRODUCERS} producers and ${WORKERS} workers on ${title}.`,
          'All are parts of this one process, since no other can reach the database.',
          'With processes of their own: npm start -- --store postgres (or mongodb).',
          `Every ${seconds} s a worker is stopped in the midst of its work.`,
        ]
      : [
          `${PRODUCERS} producers and ${WORKERS} workers on ${title}, each a process of its own.`,
          `Every ${seconds} s a worker is killed in the midst of its work.`,
        ]),
  );
}

async function run(place: Place, screen: Screen, end: AbortSignal): Promise<void> {
  const store = place.database.store(place.url, place.space);
  await using mill = new Tidemill({ store, logger: false });
  const board = new Board(mill);
  const listeners: CrewOptions = {
    report: (from, report) => board.take(from, report),
    died: (name, why) => {
      // Ctrl-C also ends a child that is not ready for it yet.
      if (!end.aborted) board.tell(`${name} ended by itself (${why})`);
    },
  };
  const crew = place.database.inProcess ? new Parts(store, listeners) : new Processes(place, listeners);
  const startedAt = performance.now();
  await mill.jobs.stats(); // The first call makes tables or indexes, before anybody needs them.
  for (let i = 0; i < WORKERS; i += 1) crew.start('worker');
  for (let i = 0; i < PRODUCERS; i += 1) crew.start('producer');

  const accidents = setInterval(() => accident(crew, board, end), ACCIDENT_EVERY_MS);
  try {
    while (!end.aborted) {
      await board.read();
      screen.show(board.picture(crew.alive('worker'), crew.alive('producer')));
      await sleep(REFRESH_MS, undefined, { signal: end }).catch(() => undefined);
    }
  } finally {
    clearInterval(accidents);
    await finish(crew, board, startedAt);
  }
}

/** Ends a worker in the midst of its work, and brings another one in. */
function accident(crew: Crew, board: Board, end: AbortSignal): void {
  const workers = crew.alive('worker');
  const victim = workers[Math.floor(Math.random() * workers.length)];
  if (victim === undefined) return;
  board.tell(crew.strike(victim));
  board.struck += 1;
  setTimeout(() => {
    if (!end.aborted) board.tell(`${crew.start('worker')} is started in its place`);
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
  if (board.struck > 0)
    console.log(`Workers ${crew.accident}: ${board.struck}. Jobs handed on after it: ${board.handedOn}.`);
}
