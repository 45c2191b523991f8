import { startMongo } from '@tidemill/servers';
import { describe, expect, it } from 'vitest';
import { runReactiveChaos, type ReactiveChaosReport } from './reactive-chaos.js';

function promisesKept(report: ReactiveChaosReport): void {
  expect(report.unhandled).toEqual([]);
  expect(report.stuck).toEqual([]);
  expect(report.matching).toBeGreaterThan(50);
  expect(report.runs).toBeGreaterThan(report.matching);
}

const counted = (report: ReactiveChaosReport, what: RegExp): number =>
  Object.entries(report.harm).reduce((sum, [name, times]) => sum + (what.test(name) ? times : 0), 0);

describe('chaos of reactive tasks', () => {
  it('handles the last state of every document while leaders and workers are killed and frozen', async () => {
    await using server = await startMongo();
    const report = await runReactiveChaos({
      server,
      workers: 4,
      documents: 150,
      harmMs: 7_000,
      everyMs: 1_500,
    });
    promisesKept(report);
    expect(counted(report, /^(?:leader|worker)/u)).toBeGreaterThan(2);
  }, 300_000);

  it('does so while the primary steps down and is killed as well', async () => {
    await using server = await startMongo({ nodes: 3 });
    const report = await runReactiveChaos({
      server,
      workers: 4,
      documents: 150,
      harmMs: 9_000,
      everyMs: 1_500,
    });
    promisesKept(report);
    expect(counted(report, /step down|primary/u)).toBeGreaterThan(1);
  }, 300_000);
});
