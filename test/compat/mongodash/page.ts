/** The right-hand sides of the table in docs/from-mongodash.md, for the compiler. Never runs. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ClientSession, MongoClient } from 'mongodb';
import { Tidemill, type TaskContext } from 'tidemill';
import { createDashboard, toNodeHandler, type DashboardOptions } from 'tidemill/dashboard';
import { mongodb } from 'tidemill/mongodb';

export async function page(
  uri: string,
  client: MongoClient,
  context: TaskContext,
  session: ClientSession,
  handler: () => Promise<void>,
  run: () => Promise<void>,
  work: () => Promise<void>,
  hook: () => void,
  onError: (error: Error) => void,
  authorize: DashboardOptions['authorize'],
  req: IncomingMessage,
  res: ServerResponse,
): Promise<Tidemill> {
  const mill = new Tidemill({ store: mongodb({ uri }) });
  const shared = new Tidemill({ store: mongodb({ client }) });
  // prettier-ignore
  await mill.reactiveTask({ task: 'sync', collection: 'orders', filter: { status: 'paid' }, handler });
  await mill.start();
  await mill.stop();
  context.defer('5s');
  context.throttleAll('1m');
  await context.complete({ transaction: session });
  await mill.tasks.find({ status: 'failed' }, { limit: 20 });
  await mill.tasks.count({ task: 'sync' });
  await mill.tasks.retryMany({ task: 'sync', sourceDocFilter: { vip: true } });
  mill.job('report', run);
  await mill.schedule('0 3 * * *', 'report');
  mill.job('ping', run);
  await mill.schedule({ every: '5m' }, 'ping');
  await mill.schedules.runNow('report');
  await mill.schedules.list();
  await mill.withLock('books', work, { wait: 0, lease: '30s' });
  await mill.withTransaction(work);
  await mill.withTransaction(work).then(hook);
  client.db().collection('orders');
  await mill.getPrometheusMetrics();
  toNodeHandler(createDashboard({ mill, authorize }))(req, res);
  mill.on('error', ({ error }) => onError(error));
  return shared;
}
