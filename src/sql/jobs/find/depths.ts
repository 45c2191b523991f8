import type { Depth, DepthRequest } from '../../../store/port.js';
import type { Sql } from '../../connection/connection.js';
import { run } from '../../connection/errors.js';
import { namesWithBudget } from './find.js';
import { ms } from '../record.js';
import { rows } from '../../connection/rows.js';

const DUE = `status = 'pending' and next_run_at > '-infinity' and next_run_at <= statement_timestamp()`;

/**
 * Each count is a range of an index, read in index order, and stops at the cap. Running jobs are few, and counted once
 * for all names.
 *
 * $1 cap over all names
 */
export function depthsStatement({ names: { jobs } }: Sql): string {
  const resting = (status: string): string => `(select count(*) from (
      select from ${jobs} where name = n.name and status = '${status}'
      order by created_at desc, id desc limit budget.cap) one)`;
  return `
  ${namesWithBudget(jobs)}
  select json_build_object('name', n.name,
    'counts', json_build_object('pending', ${resting('pending')},
      'processing', coalesce((select r.count from running r where r.name = n.name), 0),
      'failed', ${resting('failed')}),
    'due', (select count(*) from (
      select from ${jobs} where name = n.name and ${DUE} order by next_run_at, id limit budget.cap) one),
    'lagMs', coalesce((select ${ms('statement_timestamp() - next_run_at')} from ${jobs}
      where name = n.name and ${DUE} order by next_run_at, id limit 1), 0))::text as json
  from named n cross join budget`;
}

export async function depths(sql: Sql, { cap }: DepthRequest): Promise<readonly Depth[]> {
  return run('count', () => rows<Depth>(sql.driver, depthsStatement(sql), [cap]));
}
