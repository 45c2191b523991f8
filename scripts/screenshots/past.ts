/** Makes up the hour before: a mill that has just started has no history, and its charts would be empty. */
import type { Document, MongoClient } from 'mongodb';
import type { Cell } from '../../src/store/metrics.js';
import type { Store } from '../../src/store/port.js';

const MINUTE_MS = 60_000;
const MINUTES = 60;

/** Moves the times of work back by random amounts, within the last hour. */
export async function ageWork(client: MongoClient): Promise<void> {
  const jobs = client.db().collection('tidemill_jobs');
  const back = { $multiply: [{ $rand: {} }, MINUTES * MINUTE_MS] };
  const move = (...fields: string[]): Document[] => [
    { $set: { back } },
    { $set: Object.fromEntries(fields.map((field) => [field, { $subtract: [`$${field}`, '$back'] }])) },
    { $unset: 'back' },
  ];
  const ended = ['completed', 'failed'];
  await jobs.updateMany({ status: { $in: ended } }, move('createdAt', 'updatedAt', 'nextRunAt'));
  await jobs.updateMany({ status: { $nin: ended }, failCount: 0 }, move('createdAt', 'updatedAt'));
}

/** A calm hour with one bad period, in which the mail server is away for ten minutes. */
export async function saveHour(store: Store): Promise<void> {
  const last = Math.floor(Date.now() / MINUTE_MS) - 1;
  const minutes = Array.from({ length: MINUTES }, (_, i) => ({
    at: new Date((last - MINUTES + 1 + i) * MINUTE_MS),
    cells: cellsOf(i),
  }));
  await store.metrics.saveMinutes('0'.repeat(32), minutes);
  for (const [i, { at }] of minutes.entries())
    await store.metrics.saveWaiting(at, [{ kind: 'job', name: 'send-email', due: backlog(i), lagMs: 40 }]);
}

const isBad = (minute: number): boolean => minute >= 34 && minute < 44;
/** Deterministic, so that the screenshots stay the same. */
const noise = (seed: number): number => Math.abs(Math.sin(seed * 12.9898) * 43_758.5453) % 1;

/** It grows in the bad period, and is worked off afterwards. */
function backlog(minute: number): number {
  const swell = Math.max(0, minute - 33) * Math.max(0, 50 - minute) * (isBad(minute) ? 2.4 : 1.2);
  return Math.round(6 + noise(minute) * 9 + swell);
}

function cellsOf(minute: number): Cell[] {
  const tide = 1 + 0.35 * Math.sin(minute / 8);
  return [
    cell(
      'job',
      'send-email',
      240 * tide * (isBad(minute) ? 0.55 : 1),
      minute,
      isBad(minute) ? 0.16 : 0.004,
      95,
    ),
    cell('job', 'resize-image', 70 * tide, minute + 100, 0.002, 640),
    cell('job', 'charge-card', 42 * tide, minute + 200, 0.012, 310),
    cell('task', 'sync-order', 55 * tide, minute + 300, 0.006, 120),
  ];
}

function cell(
  kind: Cell['kind'],
  name: string,
  mean: number,
  seed: number,
  faults: number,
  runMs: number,
): Cell {
  const done = Math.round(mean * (0.85 + noise(seed) * 0.3));
  const retried = Math.round(done * faults * (0.6 + noise(seed + 1)));
  const failed = Math.round(retried * 0.3 * noise(seed + 2));
  const started = done + retried + failed;
  const waitMs = 14 + noise(seed + 3) * 10 + faults * 900;
  return {
    kind,
    name,
    started,
    done,
    failed,
    retried,
    waitMsSum: started * waitMs,
    waitMsMax: waitMs * 4,
    runMsSum: started * runMs * (0.9 + noise(seed + 4) * 0.2),
    runMsMax: runMs * 6,
  };
}
