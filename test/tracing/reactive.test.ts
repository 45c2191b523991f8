import { expect, it } from 'vitest';
import { startedUp } from '../reactive/probes.js';
import { eachDatabase } from '../reactive/shared/test-databases.js';
import { until } from '../support/mills.js';
import { ended, idOf, linksOf, spans, useTracing } from './spans.js';

useTracing();

eachDatabase('traces of tasks', (aDatabase) => {
  it('the span of a run links to the planning of the change that caused it', async () => {
    const { mill, docs, reaches } = await aDatabase();
    const worker = mill();
    await worker.reactiveTask({ task: 'sync', collection: 'things', debounce: 0, handler: () => undefined });
    await startedUp(worker, 'sync');
    for (const n of [1, 2]) {
      if (n === 1) await docs.insertOne({ _id: 7, n });
      else await docs.updateOne({ _id: 7 }, { $set: { n } });
      const run = (await ended('run sync', n))[n - 1];
      expect(run?.parentSpanContext).toBeUndefined();
      // It may run before the planning of its batch has ended.
      await until('the span that it points to has ended', () =>
        spans('plan').some((span) => idOf(span.spanContext()) === linksOf(run!)[0]),
      );
      expect(run?.attributes).toMatchObject({ 'tidemill.kind': 'task', 'tidemill.outcome': 'returned' });
      await reaches(worker, 'sync', 7, 'completed');
    }
    const [first, second] = spans('run sync').map((span) => linksOf(span)[0]);
    expect(first).not.toBe(second);
  });
});
