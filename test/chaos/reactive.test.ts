import { startMongo, startPostgres } from '@tidemill/servers';
import { describe, expect, it } from 'vitest';
import type { ChaosDatabase } from './chaos-database.js';
import { mongodbDatabase, MONGO_SETTINGS } from './mongodb-database.js';
import { postgresDatabase, POSTGRES_SETTINGS } from './postgres-database.js';
import { runReactiveChaos, type ReactiveChaosReport } from './reactive-chaos.js';

const OPTIONS = { workers: 4, documents: 150, everyMs: 1_500 } as const;

function promisesKept(report: ReactiveChaosReport): void {
  expect(report).toMatchObject({ unhandled: [], stuck: [], twice: [], violations: [] });
  expect(report.matching).toBeGreaterThan(50);
}

const counted = (report: ReactiveChaosReport, what: RegExp): number =>
  Object.entries(report.harm).reduce((sum, [name, times]) => sum + (what.test(name) ? times : 0), 0);

describe('chaos of reactive tasks', () => {
  it('handles the last state of every document on MongoDB while leaders and workers are killed and frozen', async () => {
    await using server = await startMongo(MONGO_SETTINGS);
    const report = await runReactiveChaos({
      ...OPTIONS,
      database: await mongodbDatabase(server),
      harmMs: 7_000,
    });
    promisesKept(report);
    expect(counted(report, /^(?:leader|worker)/u)).toBeGreaterThan(2);
  }, 300_000);

  it("handles the last state of every document while a replica set's primary steps down and is killed", async () => {
    await using server = await startMongo({ nodes: 3, ...MONGO_SETTINGS });
    const report = await runReactiveChaos({
      ...OPTIONS,
      database: await mongodbDatabase(server),
      harmMs: 10_000,
    });
    promisesKept(report);
    expect(counted(report, /step down|primary/u)).toBeGreaterThan(0);
  }, 300_000);

  it('handles the last state of every row on PostgreSQL while connections, rows and the server fail', async () => {
    await using server = await startPostgres({ settings: POSTGRES_SETTINGS });
    const database = await postgresDatabase(server);
    const report = await runReactiveChaos({ ...OPTIONS, database, harmMs: 18_000 });
    promisesKept(report);
    expect(report.harm).toMatchObject({
      'connections ended': expect.any(Number) as number,
      'server killed': expect.any(Number) as number,
    });
  }, 300_000);

  it.each<[string, () => Promise<{ readonly database: ChaosDatabase } & AsyncDisposable>]>([
    [
      'MongoDB',
      async () => {
        const server = await startMongo(MONGO_SETTINGS);
        const database = await mongodbDatabase(server);
        return { database, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
      },
    ],
    [
      'PostgreSQL',
      async () => {
        const server = await startPostgres({ settings: POSTGRES_SETTINGS });
        const database = await postgresDatabase(server);
        return { database, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
      },
    ],
  ])(
    'handles every last state on %s while leaders of partitions are killed and their number changes',
    async (_name, open) => {
      await using opened = await open();
      const report = await runReactiveChaos({
        ...OPTIONS,
        // The faults of the server are the same for any number of partitions.
        database: { ...opened.database, harm: () => Promise.resolve() },
        harmMs: 6_000,
        partitions: [2, 3],
      });
      promisesKept(report);
      expect(counted(report, /^leader of the last partition killed/u)).toBeGreaterThan(0);
      expect(counted(report, /between two numbers/u)).toBeGreaterThan(0);
    },
    300_000,
  );
});
