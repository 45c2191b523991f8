/** The documents that reactive tasks follow during chaos, as writers and the judge see them. */
import { MongoClient } from 'mongodb';
import pg from 'pg';
import { random, sleep } from './chaos-database.js';

export interface Doc {
  readonly _id: number;
  /** Changes with every write, so that each state of each document is handled once or skipped. */
  readonly version: number;
  /** Half of the documents move in and out of the filter. */
  readonly active: boolean;
}

export interface Documents {
  readonly put: (doc: Doc) => Promise<unknown>;
  readonly remove: (id: number) => Promise<unknown>;
  readonly matching: () => Promise<readonly Doc[]>;
  readonly close: () => Promise<void>;
}

export const documentsAt = (address: string): Documents =>
  address.startsWith('postgres:') ? rows(address) : collection(address);

export const VERSIONS = 2 ** 48;

/** Changes a document, moves it out of the filter or back in, or deletes it; a deleted document is inserted again. */
export async function writeOnce(documents: Documents, count: number): Promise<void> {
  const [_id, dice] = [random(count), Math.random()];
  try {
    if (dice < 0.03) await documents.remove(_id);
    else await documents.put({ _id, version: random(VERSIONS), active: _id % 2 === 0 || dice < 0.8 });
  } catch {
    // The server is down at the moment, or another writer inserted the same document.
    await sleep(50);
  }
}

function collection(uri: string): Documents {
  const client = new MongoClient(uri);
  const docs = client.db().collection<Doc>('docs');
  return {
    put: ({ _id, ...fields }) => docs.updateOne({ _id }, { $set: fields }, { upsert: true }),
    remove: (_id) => docs.deleteOne({ _id }),
    matching: () => docs.find({ active: true }).toArray(),
    close: () => client.close(),
  };
}

const PUT = `insert into docs values ($1, $2, $3)
  on conflict (_id) do update set version = excluded.version, active = excluded.active`;

/** Some writes happen in a transaction that commits late or not at all, so later changes are seen first. */
function rows(url: string): Documents {
  const pool = new pg.Pool({ connectionString: url, max: 2, connectionTimeoutMillis: 5_000 });
  pool.on('error', () => undefined);
  const slowly = async (doc: Doc): Promise<void> => {
    const client = await pool.connect();
    // A broken connection is not used again.
    let broken = true;
    const onError = (): void => undefined;
    client.on('error', onError);
    try {
      await client.query('begin');
      await client.query(PUT, [doc._id, doc.version, doc.active]);
      await sleep(random(100));
      await client.query(random(3) === 0 ? 'rollback' : 'commit');
      broken = false;
    } finally {
      client.removeListener('error', onError);
      client.release(broken);
    }
  };
  return {
    put: (doc) => (random(10) === 0 ? slowly(doc) : pool.query(PUT, [doc._id, doc.version, doc.active])),
    remove: (id) => pool.query('delete from docs where _id = $1', [id]),
    matching: async () =>
      (await pool.query<Doc>('select _id, version::float8 as version, active from docs where active')).rows,
    close: () => pool.end(),
  };
}
