import { describe, expect, it } from 'vitest';
import type { TaskRecord } from '../../src/core/records/task.js';
import { LoopDetector } from '../../src/reactive/run/loop-detector.js';

const MINUTE = 60_000;

const aRun = (id: string, lastObservedValues: unknown): TaskRecord => ({
  _id: { task: 'sync', id },
  key: { task: 'sync', id },
  id: `sync/${id}`,
  name: 'sync',
  task: 'sync',
  sourceDocId: id,
  status: 'processing',
  scheduledAt: new Date(0),
  initialScheduledAt: new Date(0),
  attempts: 1,
  createdAt: new Date(0),
  updatedAt: new Date(0),
  lockedAt: new Date(0),
  lastObservedValues,
});

/** The number of each run that was reported, with the fields of the report. */
function reports(
  values: (run: number) => unknown,
  { runs = 25, everyMs = 1_000, detector = new LoopDetector() } = {},
): [run: number, fields: readonly string[]][] {
  return Array.from({ length: runs }, (_, at) => at + 1).flatMap((run) => {
    const fields = detector.looping(aRun('1', values(run)), run * everyMs);
    return fields === undefined ? [] : [[run, fields] as [number, readonly string[]]];
  });
}

describe('the detector of loops', () => {
  it('reports the tenth run of a document within a minute once, with the fields that changed', () => {
    expect(reports((run) => ({ n: run, name: 'same' }))).toEqual([[10, ['n']]]);
  });

  it('notices a change in a long text', () => {
    expect(reports((run) => ({ text: `${'x'.repeat(1_000)}${String(run)}` }))).toEqual([[10, ['text']]]);
  });

  it('reports fields that come and go, and values that JSON does not know', () => {
    expect(reports((run) => (run % 2 === 0 ? { big: 1n } : { big: 1n, extra: true }))).toEqual([
      [10, ['extra']],
    ]);
  });

  it('reports nothing while the values stay the same, as in retries', () => {
    expect(reports(() => ({ n: 1, list: [1, 2, 3] }))).toEqual([]);
    expect(reports(() => undefined)).toEqual([]);
  });

  it('reports nothing if the runs are spread over more than a minute', () => {
    expect(reports((run) => ({ n: run }), { everyMs: MINUTE / 8 })).toEqual([]);
  });

  it('reports again in the next minute', () => {
    expect(reports((run) => ({ n: run }), { runs: 80 }).map(([run]) => run)).toEqual([10, 71]);
  });

  it('keeps no snapshot, whose size has no limit', () => {
    const values = { n: 0 };
    // If the object itself were kept, it would equal itself.
    const inPlace = (run: number): unknown => Object.assign(values, { n: run });
    expect(reports(inPlace)).toEqual([[10, ['n']]]);
  });

  it('counts each document for itself', () => {
    const detector = new LoopDetector();
    for (let run = 0; run < 9; run += 1)
      for (const id of ['1', '2']) expect(detector.looping(aRun(id, { n: run }), run)).toBeUndefined();
    expect(detector.looping(aRun('2', { n: 9 }), 9)).toEqual(['n']);
  });
});
