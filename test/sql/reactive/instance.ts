/** An instance in its own process, to be killed. Arguments: url, schema, instanceId. */
import { Tidemill } from '../../../src/index.js';
import { postgres } from '../../../src/postgres/index.js';

const [url = '', schema = '', instanceId = ''] = process.argv.slice(2);
const say = (event: string, fields: object = {}): void => void process.send?.({ event, ...fields });

const mill = new Tidemill({
  store: postgres({ url, schema }),
  instanceId,
  leaseDuration: 1_000,
  logger: false,
  pollInterval: { min: 10, max: 200 },
});
mill.on('leader:gained', () => say('leads'));
await mill.reactiveTask<{ id: number; version: number }>({
  task: 'sync',
  collection: 'docs',
  debounce: 0,
  handler: async ({ getDocument }) => {
    const { id, version } = await getDocument();
    say('handled', { id, version });
  },
});
process.on('disconnect', () => process.exit(1));
await mill.start();
say('started');
