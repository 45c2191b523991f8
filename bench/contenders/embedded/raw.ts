import { randomUUID } from 'node:crypto';
import { PGlite } from '@electric-sql/pglite';
import { embedded } from '../../../src/embedded/index.js';
import { newId } from '../../../src/sql/jobs/enqueue/ids.js';
import { CLAIM, COMPLETE, DUE, drained, INSERT, INSERT_MANY } from '../../lib/rows.js';
import type { Contender, Payload, Place } from '../contender.js';
import { folderOf, type EmbeddedModule } from './contender.js';

const variants = { all100: { size: 100 }, all500: { size: 500 } };

async function work(db: PGlite, size: number, run: (data: Payload) => void): Promise<void> {
  for (;;) {
    const token = randomUUID();
    const { rows } = await db.query<{ id: string; data: Payload }>(CLAIM, [size, token]);
    if (rows.length === 0) break;
    for (const row of rows) run(row.data);
    await db.query(COMPLETE, [rows.map(({ id }) => id), token]);
  }
}

/** PGlite by itself, with Tidemill's table and all of its indexes. It retries nothing and recovers nothing. */
async function open(place: Place): Promise<Contender> {
  const { size } = variants[place.variant as keyof typeof variants];
  const db = await PGlite.create(folderOf(place));
  const { rows } = await db.query<{ made: string | null }>(`select to_regclass('tidemill.jobs') as made`);
  if (rows[0]?.made === null) await db.exec(embedded().migrationScript());
  return {
    enqueue: (data) => db.query(INSERT, [newId(Date.now()), data]),
    enqueueMany: (data) =>
      db.query(INSERT_MANY, [data.map(() => newId(Date.now())), data.map((one) => JSON.stringify(one))]),
    fill: async (count) => {
      await db.query(DUE, [count]);
    },
    start: (run) => {
      void work(db, size, run);
      return Promise.resolve();
    },
    finished: () => drained(db),
    stop: () => db.close(),
  };
}

export const contender: EmbeddedModule = {
  title: 'raw PGlite',
  variants,
  packages: [],
  open,
};
