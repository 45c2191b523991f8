/**
 * A worker process that stops dead at one step of a transactional handler and says so; whoever hears it kills it.
 * Arguments: uri, the step, lease in milliseconds.
 */
import { MongoClient, type ClientSession } from 'mongodb';
import { Tidemill } from '../../src/index.js';
import { mongodb } from '../../src/mongodb/index.js';
interface Row {
  _id: string;
  by: string;
  docId: unknown;
}

const [uri = '', step = '', leaseMs = '1000'] = process.argv.slice(2);
const client = new MongoClient(uri);
const effects = client.db().collection<Row>('effects');
const mill = new Tidemill({ store: mongodb({ client }), leaseDuration: Number(leaseMs), logger: false });

/** Never ends, where this is the step at which the process is to die. */
const reach = async (name: string, session?: ClientSession): Promise<void> => {
  if (name !== step) return;
  process.send?.({ step: name, session: session?.id?.id.toString('hex') });
  await new Promise(() => setInterval(() => undefined, 1_000));
};

await mill.reactiveTask({
  task: 'exact',
  collection: 'things',
  debounce: 0,
  retryPolicy: { type: 'fixed', interval: 10, maxAttempts: 3 },
  handler: async ({ docId, getDocument, markCompleted }) => {
    await reach('before the transaction');
    await client.withSession(async (session) => {
      await session.withTransaction(async () => {
        const document = await getDocument({ session });
        await effects.insertOne({ _id: document['_id'] as string, by: 'child', docId }, { session });
        await reach('before markCompleted', session);
        await markCompleted({ session });
        await reach('before the commit', session);
      });
      await reach('after the commit');
    });
  },
});
await mill.start();
