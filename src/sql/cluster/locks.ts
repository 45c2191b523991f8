import { OptionError } from '../../core/errors.js';
import type { LockAnswer, LockOwner, LockStore } from '../../store/port.js';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { run } from '../connection/errors.js';
import { rows } from '../connection/rows.js';
import { refusesText } from '../connection/values.js';
import { vitally } from '../connection/vital.js';

/** Locks that have been unused for this long are deleted. */
const KEPT = `interval '7 days'`;

const until = ({ leaseNow }: Sql, parameter: string): string =>
  `${leaseNow()} + ${parameter}::double precision * interval '1 millisecond'`;

/**
 * The fence number grows from that of the last holder, whatever the clocks do. It starts at the server's time, so that
 * a lock whose row was deleted in between resumes above its last number.
 */
const NEXT_FENCE = `(extract(epoch from statement_timestamp()) * 1000)::bigint`;

/**
 * Takes a lock that is free, already held under this token or, unless `patient`, expired. Otherwise returns its holder.
 *
 * $1 key · $2 token · $3 instance · $4 lease
 */
const acquireStatement = (sql: Sql, patient: boolean): string => {
  const { locks } = sql.names;
  const over = `lease_until <= ${sql.leaseNow()}`;
  return `
  with taken as (
    insert into ${locks} as l (key, token, held_by, lease_until, fence)
    values ($1::text, $2::text, $3::text, ${until(sql, '$4')}, ${NEXT_FENCE})
    on conflict (key) do update set
      token = excluded.token, held_by = excluded.held_by, lease_until = excluded.lease_until,
      fence = case when l.token = excluded.token then l.fence else greatest(l.fence + 1, excluded.fence) end
    where l.token is null or l.token = excluded.token ${patient ? '' : `or l.${over}`}
    returning fence
  )
  select json_build_object('fence', fence)::text as json from taken
  union all
  select json_build_object('heldBy', held_by ${patient ? `, 'expired', ${over}` : ''})::text from ${locks}
  where key = $1::text and not exists (select from taken)`;
};

export function lockStore(sql: () => Sql): LockStore {
  const change = async (on: Queryable, text: string, values: (string | number)[]): Promise<boolean> =>
    (await rows(on, text, values)).length === 1;

  return {
    acquire: (key, owner, leaseMs, { patient = false } = {}) =>
      run('acquire a lock', async () => {
        const fault = refusesText(key);
        if (fault !== null) throw new OptionError(`withLock: key ${fault}; use another one.`);
        for (;;) {
          const [answer] = await rows<LockAnswer>(sql().driver, acquireStatement(sql(), patient), [
            key,
            owner.token,
            owner.instanceId,
            leaseMs,
          ]);
          // Two callers may create the same key at once; the loser does not see the winner's row yet, and asks again.
          if (answer !== undefined) return answer;
        }
      }),
    renew: (key, owner, leaseMs) =>
      run('renew a lock', async () => {
        const text = `update ${sql().names.locks} set lease_until = ${until(sql(), '$3')}
          where key = $1::text and token = $2::text returning '1' as json`;
        return (await change(vitally(sql(), leaseMs), text, [key, owner.token, leaseMs]))
          ? 'renewed'
          : 'lost';
      }),
    release: (key, owner: LockOwner) =>
      run('release a lock', async () => {
        const text = `update ${sql().names.locks} set token = null, held_by = null, lease_until = ${sql().leaseNow()}
          where key = $1::text and token = $2::text returning '1' as json`;
        return (await change(sql().driver, text, [key, owner.token])) ? 'released' : 'lost';
      }),
  };
}

/** Part of the sweep. A lock under a valid lease ends in the future, so it is never deleted. */
export async function sweepLocks({ driver, names, leaseNow }: Sql): Promise<void> {
  await driver.query(`delete from ${names.locks} where lease_until < ${leaseNow()} - ${KEPT}`);
}
