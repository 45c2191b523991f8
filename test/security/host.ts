/**
 * A process with both servers of the dashboard: mounted in node:http, and the command line's own. Prints where they
 * are.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { serveDashboard } from '../../src/cli/serve/serve.js';
import { createDashboard, toNodeHandler } from '../../src/dashboard/index.js';
import { Tidemill } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';

const mill = new Tidemill({ store: memory(), logger: false });
await mill.enqueue('mail', { to: 'ada' }, { delay: '1h' });

const mounted = createServer(
  toNodeHandler(
    createDashboard({
      mill,
      basePath: '/mill',
      authorize: ({ headers }) => {
        if (headers.get('x-user') === 'broken') throw new Error('no session store');
        if (headers.get('x-user') === 'used') return usedResponse();
        return headers.get('x-user') === null ? null : ['view', 'payload', 'act'];
      },
      // The host's own logger may be broken, too.
      onError: (error) => {
        console.error(`logged: ${String(error)}`);
        throw new Error('the logger is broken');
      },
    }),
  ),
);

/** A response whose body has been read already cannot be sent. */
async function usedResponse(): Promise<Response> {
  const response = new Response('once');
  await response.text();
  return response;
}

await new Promise<void>((resolve) => mounted.listen(0, '127.0.0.1', resolve));
const served = await serveDashboard({ mill, port: 0, readOnly: false, onError: console.error });
console.log(JSON.stringify({ mounted: (mounted.address() as AddressInfo).port, link: served.link }));
