import { expect, it } from 'vitest';
import { aMill, gate, until } from '../support/mills.js';
import { eachDocumentStore, past } from '../documents/shared/document-fixtures.js';
import { scraped, under } from './text.js';

eachDocumentStore('metrics of documents', ({ name, open }) => {
  // A standalone scheduler has no mill to report to.
  it.skipIf(name === 'three methods')(
    'counts runs of documents by outcome, and documents that are due',
    async () => {
      const fixture = await open();
      if (!('jobs' in fixture.store)) throw new Error('no store');
      const mill = aMill(fixture.store);
      const [entered, leave] = [gate(), gate()];
      const failed = new Set<string>();
      mill.documents({
        collection: fixture.collection,
        retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 2 },
        onDocument: async (document: Record<string, unknown>) => {
          entered.open();
          await leave.promise;
          const note = String(document['note']);
          if (note === 'never' || (note === 'once' && !failed.has(note))) {
            failed.add(note);
            throw new Error(note);
          }
        },
      });
      for (const note of ['well', 'once', 'never']) await fixture.insert({ sleepUntil: past(), note });
      await mill.start();
      await entered.promise;
      const labels = `{kind="document",name="${fixture.collection}"`;
      const during = await scraped(mill);
      expect(under(during, `tidemill_queue_depth${labels},`)).toEqual({ 'status="due"}': 2 });
      expect(during.get(`tidemill_lag_seconds${labels}}`)).toBeGreaterThan(0);
      leave.open();
      const counts = `tidemill_attempts_total${labels},outcome=`;
      await until('all have ended', async () => {
        const ended = Object.values(under(await scraped(mill), counts)).reduce(
          (sum, count) => sum + count,
          0,
        );
        return ended >= 5;
      });
      // Scraped again: the last run may have ended while the depths were being counted.
      const values = await scraped(mill);
      expect(under(values, counts)).toEqual({ '"completed"}': 2, '"retried"}': 2, '"failed"}': 1 });
      expect(under(values, `tidemill_duration_seconds_count${labels},`)).toEqual({
        'status="success"}': 2,
        'status="failure"}': 3,
      });
      expect(values.get(`tidemill_wait_seconds_count${labels}}`)).toBe(5);
      expect(values.get(`tidemill_queue_depth${labels},status="due"}`)).toBe(0);
      await mill.stop();
      const points = await mill.metrics.series({ kind: 'document' });
      expect(points.reduce((sum, { done }) => sum + done, 0)).toBe(2);
    },
  );
});
