/** An instance in its own process, which tells its parent what happens. Argument: InstanceOptions as JSON. */
import { Tidemill } from '../../src/index.js';
import { mongodb } from '../../src/mongodb/index.js';
import type { InstanceOptions } from './instances.js';

const options = JSON.parse(process.argv[2] ?? '{}') as InstanceOptions;
const { uri, instanceId, leaseMs = 1_000, roles, rate, handlerMs = 0, version = 1, partitions = 1 } = options;

const say = (event: string, fields: object = {}): void => {
  process.send?.({ event, at: Date.now(), ...fields });
};

const mill = new Tidemill({
  store: mongodb({ uri }),
  leaseDuration: leaseMs,
  logger: false,
  pollInterval: { min: 10, max: 200 },
  ...(instanceId === undefined ? {} : { instanceId }),
  reactive: { partitions, ...(rate === undefined ? {} : { reconcileRate: rate }) },
});
for (const event of [
  'leader:gained',
  'leader:lost',
  'history:lost',
  'reconcile:start',
  'reconcile:progress',
  'reconcile:complete',
] as const) {
  mill.on(event, (payload) => say(event, payload));
}
mill.on('error', ({ error, where }) => say('error', { text: `${where}: ${error.message}` }));

await mill.reactiveTask<{ version: number }>({
  task: 'sync',
  collection: 'docs',
  debounce: 0,
  evolution: { handlerVersion: version, onHandlerVersionChange: 'reprocess_all' },
  handler: async ({ docId, getDocument }) => {
    const document = await getDocument();
    if (handlerMs > 0) await new Promise((resolve) => setTimeout(resolve, handlerMs));
    say('handled', { id: docId, version: document.version, by: version });
  },
});

process.on('message', (message) => {
  if (message !== 'stop') return;
  void mill.stop({ timeout: '5s' }).then(() => process.exit(0));
});
process.on('disconnect', () => process.exit(1));

await mill.start(roles === undefined ? {} : { roles });
say('started');
