import type { MongoServer } from '@tidemill/servers';
import { MongoClient, type Document } from 'mongodb';
import { mongodb } from '../../src/mongodb/index.js';
import { withDetours } from './detour.js';
import { FreezingProxy } from './freezing-proxy.js';
import { inTurn, OUTAGE_MS, random, sleep, type ChaosDatabase, type Harms } from './chaos-database.js';

/** For secondaries that stop replicating. */
export const MONGO_SETTINGS = { failPoints: true } as const;
const LAG_MS = 4_000;

/**
 * MongoDB. The server goes away for longer than a lease, and connections to it freeze; a set of three also loses its
 * primary, and its majority lags.
 */
export async function mongodbDatabase(server: MongoServer): Promise<ChaosDatabase> {
  const uri = server.uri.replace('/?', `/chaos_${String(Date.now())}?`);
  const proxies = await Promise.all(server.members.map((member) => FreezingProxy.before(member)));
  const detours = server.members.map(({ port }, at) => [port, (proxies[at] as FreezingProxy).port] as const);
  return {
    address: withDetours(uri, detours),
    direct: uri,
    open: () => mongodb({ uri }),
    harm: (harm) => inTurn(harmsTo(server, proxies), harm, () => 1_500 + random(1_500)),
    effects: () =>
      withClient(uri, async (client) => {
        const effects = await client.db().collection<{ what: string }>('effects').find().toArray();
        return effects.map(({ what }) => what);
      }),
    clear: async () => {
      for (const proxy of proxies) proxy.close();
      await withClient(uri, async (client) => {
        // Killed workers leave transactions open, and the drop would wait until the server ends them.
        await client.db('admin').command({ killAllSessions: [] });
        await client.db().dropDatabase();
      });
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

/** Leaves time to recover after each fault. */
function harmsTo(server: MongoServer, proxies: readonly FreezingProxy[]): Harms {
  const both: Harms = [
    ['connections frozen', async () => proxies.forEach((proxy) => proxy.freeze())],
    ['outage', () => outage(server)],
  ];
  if (server.members.length === 1) return both;
  return [
    ['step down', () => stepDown(server)],
    ['primary killed', () => killPrimary(server)],
    ['majority lag', () => lag(server)],
    ...both,
  ];
}

/** Every member is down for longer than a lease. */
async function outage({ members }: MongoServer): Promise<void> {
  for (const member of members) member.kill('SIGKILL');
  await sleep(OUTAGE_MS);
  await Promise.all(members.map((member) => member.restart()));
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

/** The primary keeps running, but no majority confirms its writes. */
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
  try {
    await stop('alwaysOn');
    await sleep(LAG_MS);
  } finally {
    await stop('off');
  }
}

const command = (client: MongoClient, what: Document): Promise<Document> => client.db('admin').command(what);
