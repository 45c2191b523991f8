import { expect, it } from 'vitest';
import { FatalError } from '../../src/index.js';
import { until } from '../support/mills.js';
import { startedUp } from '../reactive/probes.js';
import { eachDatabase } from '../reactive/shared/test-databases.js';
import { scraped, under } from './text.js';

eachDatabase('metrics of reactive tasks', (aDatabase) => {
  it('every instance reports the reactive_tasks metrics with task names and labels', async () => {
    const began = Date.now() / 1_000;
    const { mill, docs, reaches } = await aDatabase();
    const [leader, other] = [mill(), mill()];
    let fails = 1;
    for (const one of [leader, other])
      await one.reactiveTask({
        task: 'sync',
        collection: 'things',
        debounce: 0,
        retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 3 },
        handler: ({ docId }) => {
          if (docId === 2) throw new FatalError('never');
          if (docId === 3 && fails > 0) {
            fails -= 1;
            throw new Error('once');
          }
        },
      });
    await startedUp(leader, 'sync');
    await other.start();
    await docs.insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
    for (const [id, status] of [
      [1, 'completed'],
      [2, 'failed'],
      [3, 'completed'],
    ] as const)
      await reaches(leader, 'sync', id, status);
    const duration = 'reactive_tasks_duration_seconds_count{task_name="sync",';
    // An instance counts its work after it is recorded, and pushes when it is scraped.
    const values = await until('each has told what it did', async () => {
      await Promise.all([scraped(leader), scraped(other)]);
      const told = await scraped(other);
      const runs = Object.values(under(told, duration)).reduce((sum, count) => sum + count, 0);
      return runs >= 4 && (told.get('tidemill_planned_changes_total') ?? 0) >= 3 && told;
    });
    expect(under(values, duration)).toEqual({ 'status="success"}': 2, 'status="failure"}': 2 });
    expect(under(values, 'reactive_tasks_retries_total')).toEqual({ '{task_name="sync"}': 1 });
    expect(under(values, 'reactive_tasks_queue_depth{task_name="sync",')).toEqual({
      'status="pending"}': 0,
      'status="processing"}': 0,
      'status="processing_dirty"}': 0,
      'status="failed"}': 1,
    });
    expect(under(values, 'reactive_tasks_global_lag_seconds')).toEqual({ '{task_name="sync"}': 0 });
    expect(values.get('reactive_tasks_change_stream_lag_seconds')).toBeGreaterThanOrEqual(0);
    const reconciled = values.get('reactive_tasks_last_reconciliation_timestamp_seconds');
    expect(reconciled).toBeGreaterThan(began - 60);
    expect(values.get('tidemill_planned_changes_total')).toBeGreaterThanOrEqual(3);
    expect(values.get('tidemill_planner_leaders')).toBe(1);
    expect(values.get('tidemill_instances')).toBe(2);
    expect(values.get('tidemill_attempts_total{kind="task",name="sync",outcome="failed"}')).toBe(1);
  });

  it('the global lag grows while a deferred task waits', async () => {
    const { mill, docs, reaches } = await aDatabase();
    const worker = mill({ monitoring: { scrapeMode: 'local' } });
    await worker.reactiveTask({
      task: 'later',
      collection: 'things',
      debounce: 0,
      handler: ({ deferCurrent }) => deferCurrent('1h'),
    });
    await startedUp(worker, 'later');
    await docs.insertOne({ _id: 1 });
    await until('it was deferred', async () => {
      const task = await reaches(worker, 'later', 1, 'pending');
      return task.scheduledAt.getTime() - task.initialScheduledAt.getTime() > 1_000_000;
    });
    const lag = 'reactive_tasks_global_lag_seconds{task_name="later"}';
    await until('it has waited for a while', async () => ((await scraped(worker)).get(lag) ?? 0) > 0.05);
    expect((await scraped(worker)).get('tidemill_queue_depth{kind="task",name="later",status="due"}')).toBe(
      0,
    );
  });
});
