import { startMongo, startPostgres } from '@tidemill/servers';
import { describe, expect, it } from 'vitest';
import { runChaos, type ChaosReport } from './chaos.js';
import { mongodbDatabase, MONGO_SETTINGS } from './mongodb-database.js';
import { postgresDatabase, POSTGRES_SETTINGS } from './postgres-database.js';

function promisesKept(report: ChaosReport): void {
  expect(report.violations).toEqual([]);
  expect(report.unfinished).toEqual([]);
  expect(report.completed).toBe(report.accepted);
  expect(report.exact.effects).toBe(report.exact.jobs);
  expect(report.exact.distinct).toBe(report.exact.jobs);
  expect(report.harm['kill inside a transaction']).toBeGreaterThan(0);
  // The limits were reached, so that they could have been exceeded.
  expect(report.reached.atOnce).toBeGreaterThan(1);
  expect(report.reached.inWindow).toBeGreaterThan(3);
}

/** Each of these faults was injected at least once. */
const done = (...harms: readonly string[]): Readonly<Record<string, unknown>> =>
  Object.fromEntries(harms.map((harm) => [harm, expect.any(Number) as number]));

describe('job chaos', () => {
  it('loses no job and settles none twice on MongoDB through kills, freezes and outages', async () => {
    await using server = await startMongo(MONGO_SETTINGS);
    const report = await runChaos({
      database: await mongodbDatabase(server),
      workers: 4,
      jobs: 2_000,
      harmMs: 15_000,
    });
    promisesKept(report);
    expect(report.accepted).toBeGreaterThan(1_000);
    expect((report.harm['kill'] ?? 0) + (report.harm['stop'] ?? 0)).toBeGreaterThan(3);
    expect(report.harm).toMatchObject(done('connections frozen', 'outage', 'pool used up'));
  }, 300_000);

  it('loses no job and settles none twice while a replica set loses primary, majority and members', async () => {
    await using server = await startMongo({ nodes: 3, ...MONGO_SETTINGS });
    const report = await runChaos({
      database: await mongodbDatabase(server),
      workers: 4,
      jobs: 1_000,
      harmMs: 15_000,
    });
    promisesKept(report);
    expect(report.harm).toMatchObject(
      done('step down', 'primary killed', 'majority lag', 'connections frozen', 'outage'),
    );
  }, 300_000);

  it('loses no job and settles none twice on PostgreSQL while connections, rows and the server fail', async () => {
    await using server = await startPostgres({ settings: POSTGRES_SETTINGS });
    const database = await postgresDatabase(server);
    const report = await runChaos({ database, workers: 4, jobs: 600, harmMs: 18_000 });
    promisesKept(report);
    expect(report.accepted).toBeGreaterThan(300);
    expect(report.harm).toMatchObject(
      done('connections ended', 'connections used up', 'server killed', 'connections frozen', 'outage'),
    );
  }, 300_000);
});
