/** mongodb-cron beside ours: the same script on both, and what each made of it. */
import { MongoClient, type Collection, type Document } from 'mongodb';
import { afterAll, beforeAll } from 'vitest';
import { MongoCron, type MongoCronCfg } from '../../../src/compat/mongodb-cron/index.js';
import { until } from '../../support/mills.js';
import { freshUri } from '../../support/stores.js';
import { original } from '../originals.js';

type MongoCronClass = new (config: MongoCronCfg) => MongoCron;

/** What a script gets: a new collection, and a cron on it that is stopped after the script. */
export interface Side {
  readonly collection: Collection;
  /** `more`: options that mongodb-cron does not have, so it ignores them. */
  readonly cron: (config?: Omit<MongoCronCfg, 'collection'>) => MongoCron;
  /** Resolves when the cron has found nothing to do, after everything that is due now. */
  readonly quiet: (cron: MongoCron) => Promise<void>;
}

interface Library {
  readonly MongoCron: MongoCronClass;
  readonly client: MongoClient;
}

let sides: { readonly theirs: Library; readonly ours: Library };
let database: string;
let collections = 0;

/** Call this where tests are described. */
export function useBoth(): void {
  beforeAll(async () => {
    const uri = freshUri();
    database = new URL(uri).pathname.slice(1);
    const [library, driver] = await Promise.all([
      original<{ MongoCron: MongoCronClass }>('mongodb-cron'),
      original<{ MongoClient: typeof MongoClient }>('mongodb'),
    ]);
    sides = {
      theirs: { ...library, client: new driver.MongoClient(uri) },
      ours: { MongoCron, client: new MongoClient(uri) },
    };
  });
  afterAll(async () => {
    await sides.ours.client.db(database).dropDatabase();
    await Promise.all([sides.theirs.client.close(), sides.ours.client.close()]);
  });
}

async function run<T>(library: Library, script: (side: Side) => Promise<T>): Promise<T> {
  const crons: MongoCron[] = [];
  const collection = library.client.db(database).collection(`jobs_${String((collections += 1))}`);
  await collection.createIndexes([{ key: { sleepUntil: 1 } }]);
  const side: Side = {
    collection,
    cron: (config) => {
      // mongodb-cron asks without a pause unless it is told otherwise.
      const cron = new library.MongoCron({ collection, idleDelay: 10, logger: false, ...config });
      crons.push(cron);
      return cron;
    },
    quiet: async (cron) => {
      const due = { sleepUntil: { $lte: new Date(), $type: 'date' } };
      await until(
        'nothing is due',
        async () => (await collection.countDocuments(due)) === 0 && cron.isIdle(),
      );
    },
  };
  try {
    return await script(side);
  } finally {
    for (const cron of crons) {
      // mongodb-cron calls onStop again.
      if (cron.isRunning()) await cron.stop();
      await until('nothing runs', () => !cron.isProcessing());
    }
  }
}

/** What the script returns on each of them. */
export async function onBoth<T>(
  script: (side: Side) => Promise<T>,
): Promise<{ readonly theirs: T; readonly ours: T }> {
  const [theirs, ours] = await Promise.all([run(sides.theirs, script), run(sides.ours, script)]);
  return { theirs, ours };
}

export const onOurs = <T>(script: (side: Side) => Promise<T>): Promise<T> => run(sides.ours, script);

/** Documents without ids, in the order of `n`. */
export const documentsOf = (collection: Collection): Promise<Document[]> =>
  collection.find({}, { projection: { _id: 0 }, sort: { n: 1 } }).toArray();

export const ago = (ms: number): Date => new Date(Date.now() - ms);
export const ahead = (ms: number): Date => new Date(Date.now() + ms);
