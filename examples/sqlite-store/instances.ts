/** Leases of instances, and locks. The clock of SQLite is the machine's: all processes that share a file share it. */
import type { Cluster, InstanceDetails, InstanceStore, LockStore, Registration } from 'tidemill/store';
import { decode, encode, unsupported, type Row, type SqliteFile } from './database.js';

export const clusterOf = (file: SqliteFile): Cluster => ({
  now: new Date(),
  paused: new Set(file.all('SELECT name FROM paused').map(({ name }) => String(name))),
  instances: file.all('SELECT * FROM instances').map(detailsOf),
});

function detailsOf({ doc, lease_until, dead }: Row): InstanceDetails {
  const { policies, leaseMs, ...registration } = decode(doc) as Registration;
  return { ...registration, leftMs: Number(lease_until) - Date.now(), dead: dead === 1 };
}

export function sqliteInstances(file: SqliteFile): InstanceStore {
  const save = (registration: Registration): void =>
    void file.run(
      'INSERT OR REPLACE INTO instances VALUES (?, ?, ?, 0, ?)',
      registration.life,
      registration.instanceId,
      Date.now() + registration.leaseMs,
      encode(registration),
    );
  return {
    register: (registration, takeOver) =>
      file.write(() => {
        const { instanceId, life } = registration;
        const [row] = file.all(
          'SELECT * FROM instances WHERE instance_id = ? AND life <> ? AND dead = 0',
          instanceId,
          life,
        );
        if (row !== undefined) {
          const { life: other, host, pid, leftMs } = detailsOf(row);
          const expired = leftMs <= 0;
          if (!expired || other !== takeOver) return { refusedBy: { life: other, host, pid, expired } };
          file.run('UPDATE instances SET dead = 1 WHERE life = ?', other);
        }
        save(registration);
        return {};
      }),
    renew: (registration) =>
      file.write(() => {
        const [row] = file.all('SELECT life FROM instances WHERE life = ? AND dead = 0', registration.life);
        if (row === undefined) return 'lost';
        save(registration);
        return 'renewed';
      }),
    deregister: async ({ life }) => void file.run('DELETE FROM instances WHERE life = ?', life),
    list: async () => clusterOf(file),
    describe: async () => {
      const cluster = clusterOf(file);
      return { cluster, instances: cluster.instances as readonly InstanceDetails[] };
    },
    fence: async ({ life }) => {
      const sql =
        'UPDATE instances SET dead = 1 WHERE life = ? AND (dead = 1 OR lease_until <= ?) RETURNING doc';
      const [row] = file.all(sql, life, Date.now());
      return row === undefined ? undefined : { policies: (decode(row['doc']) as Registration).policies };
    },
    bury: async ({ life }) => void file.run('DELETE FROM instances WHERE life = ? AND dead = 1', life),
  };
}

/** `acquire` is enough for jobs: the instances share their sweeps by locks that end by themselves. */
export const sqliteLocks = (file: SqliteFile): LockStore => ({
  acquire: (key, { instanceId, token }, leaseMs) =>
    file.write(() => {
      const [taken] = file.all(
        `INSERT INTO locks VALUES (?1, ?2, ?3, ?4 + ?5, 1)
         ON CONFLICT (key) DO UPDATE SET token = ?2, instance_id = ?3, lease_until = ?4 + ?5, fence = fence + 1
         WHERE lease_until <= ?4 RETURNING fence`,
        key,
        token,
        instanceId,
        Date.now(),
        leaseMs,
      );
      if (taken !== undefined) return { fence: Number(taken['fence']) };
      const [held] = file.all('SELECT instance_id FROM locks WHERE key = ?', key);
      return { heldBy: String(held?.['instance_id']) };
    }),
  renew: unsupported('locks'),
  release: unsupported('locks'),
});
