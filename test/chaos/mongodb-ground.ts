import type { MongoServer } from '@tidemill/servers';
import { MongoClient, type Document } from 'mongodb';
import { mongodb } from '../../src/mongodb/index.js';
import { FreezingProxy } from './freezing-proxy.js';
import { OUTAGE_MS, random, sleep, type Ground, type Harm } from './ground.js';

/** For secondaries that stop replicating. */
export const MONGO_SETTINGS = { failPoints: true } as const;
const LAG_MS = 4_000;

/**
 * MongoDB. A set of three loses its primary, and its majority lags; a single server goes away for longer than a lease,
 * and connections to it freeze.
 */
export async function mongodbGround(server: MongoServer): Promise<Ground> {
  const uri = server.uri.replace('/?', `/chaos_${String(Date.now())}?`);
  const [only, ...others] = server.members;
  // Members of a larger set tell drivers their own addresses, past any proxy.
  const proxy = only !== undefined && others.length === 0 ? await FreezingProxy.before(only) : undefined;
  return {
    address: proxy === undefined ? uri : throughProxy(uri, proxy),
    open: () => mongodb({ uri }),
    harm: (harm) => (proxy === undefined ? harmSet(server, harm) : harmOne(server, proxy, harm)),
    effects: () =>
      withClient(uri, async (client) => {
        const effects = await client.db().collection<{ what: string }>('effects').find().toArray();
        return effects.map(({ what }) => what);
      }),
    clear: async () => {
      proxy?.close();
      await withClient(uri, (client) => client.db().dropDatabase());
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

function throughProxy(uri: string, { host }: FreezingProxy): string {
  const at = new URL(uri);
  at.host = host;
  at.search = 'directConnection=true';
  return at.href;
}

async function harmOne(server: MongoServer, proxy: FreezingProxy, { going, done }: Harm): Promise<void> {
  for (let round = 0; going() || round < 2; round += 1) {
    await sleep(1_500 + random(1_500));
    if (round % 2 === 0) proxy.freeze();
    else {
      const primary = await server.primary();
      primary.kill('SIGKILL');
      await sleep(OUTAGE_MS);
      await primary.restart();
    }
    done(round % 2 === 0 ? 'connections frozen' : 'outage');
  }
}

/** One after the other, each at least once, so that each has time to be recovered from. */
async function harmSet(server: MongoServer, { going, done }: Harm): Promise<void> {
  const harms: readonly (readonly [what: string, harm: () => Promise<unknown>])[] = [
    ['step down', () => stepDown(server)],
    ['primary killed', () => killPrimary(server)],
    ['majority lag', () => lag(server)],
  ];
  for (let round = 0; going() || round < harms.length; round += 1) {
    await sleep(round === 0 ? 1_500 : 3_000);
    const [what, harm] = harms[round % harms.length] as (typeof harms)[number];
    done(what);
    await harm();
  }
}

const stepDown = (server: MongoServer): Promise<unknown> =>
  withClient(server.uri, (client) => command(client, { replSetStepDown: 5, force: true })).catch(
    () => undefined,
  );

async function killPrimary(server: MongoServer): Promise<void> {
  const primary = await server.primary();
  primary.kill('SIGKILL');
  await sleep(3_000);
  await primary.restart();
}

/** The primary goes on, and nothing that it writes is confirmed by a majority. */
async function lag(server: MongoServer): Promise<void> {
  const primary = await server.primary();
  const stop = (mode: 'alwaysOn' | 'off'): Promise<unknown> =>
    Promise.all(
      server.members
        .filter((member) => member !== primary)
        .map(({ host, port }) =>
          withClient(`mongodb://${host}:${String(port)}/?directConnection=true`, (client) =>
            command(client, { configureFailPoint: 'stopReplProducer', mode }),
          ),
        ),
    );
  await stop('alwaysOn');
  await sleep(LAG_MS);
  await stop('off');
}

const command = (client: MongoClient, what: Document): Promise<Document> => client.db('admin').command(what);
