/**
 * A process that enqueues one unique key many times at once whenever it receives a key, and reports the answers.
 * Arguments: uri, number of calls.
 */
import { Tidemill } from '../../src/index.js';
import { mongodb } from '../../src/mongodb/index.js';
import type { Answers } from './unique.mongodb.test.js';

const [uri = '', calls = '1'] = process.argv.slice(2);
const mill = new Tidemill({ store: mongodb({ uri }), logger: false });

process.on('message', (uniqueKey: string) => {
  const jobs = Array.from({ length: Number(calls) }, () => mill.enqueue('sync', {}, { uniqueKey }));
  void Promise.allSettled(jobs).then((settled) => {
    const answers: Answers = settled.map((one) =>
      one.status === 'fulfilled'
        ? { id: one.value.id, outcome: one.value.outcome }
        : { error: String(one.reason) },
    );
    process.send?.(answers);
  });
});
process.on('disconnect', () => process.exit(0));

// The first call opens the connection, which is not part of the race.
await mill.enqueue('warm-up');
process.send?.('ready');
