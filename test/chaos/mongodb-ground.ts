import type { MongoServer } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { mongodb } from '../../src/mongodb/index.js';
import { sleep, type Ground, type Harm } from './ground.js';

/** The server of a chaos run ends transactions that stay open this long. */
export const TRANSACTION_SECONDS = 10;

/** MongoDB; of a set of three the primary steps down and is killed. */
export function mongodbGround(server: MongoServer): Ground {
  const address = server.uri.replace('/?', `/chaos_${String(Date.now())}?`);
  return {
    address,
    open: () => mongodb({ uri: address }),
    harm: (harm) => harmPrimary(server, address, harm),
    effects: () =>
      withClient(address, async (client) => {
        const effects = await client.db().collection<{ what: string }>('effects').find().toArray();
        return effects.map(({ what }) => what);
      }),
    clear: async () => {
      await withClient(address, (client) => client.db().dropDatabase());
    },
  };
}

async function withClient<T>(uri: string, work: (client: MongoClient) => Promise<T>): Promise<T> {
  const client = new MongoClient(uri);
  try {
    return await work(client);
  } finally {
    await client.close();
  }
}

/** Only a set of three can lose its primary and go on. */
async function harmPrimary(server: MongoServer, uri: string, { going, done }: Harm): Promise<void> {
  if (server.members.length < 3) return;
  for (let round = 0; going(); round += 1) {
    await sleep(4_000);
    const primary = await server.primary();
    if (round % 2 === 0) {
      done('step down');
      const stepDown = { replSetStepDown: 5, force: true };
      await withClient(uri, (client) => client.db('admin').command(stepDown)).catch(() => undefined);
    } else {
      done('primary killed');
      primary.kill('SIGKILL');
      await sleep(3_000);
      await primary.restart();
    }
  }
}
