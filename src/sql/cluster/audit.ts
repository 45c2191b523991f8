import type { AuditEntry, AuditPageRequest, AuditStore } from '../../store/audit.js';
import type { Sql } from '../connection/connection.js';
import { run } from '../connection/errors.js';
import { ms } from '../jobs/record.js';
import { rows } from '../connection/rows.js';
import { readable, timeText } from '../connection/values.js';

const ENTRY = `json_build_object('id', id, 'at', ${ms('at')}, 'updatedAt', ${ms('updated_at')}, 'actor', actor,
    'action', action, 'target', target, 'outcome', outcome, 'details', details, 'stopRequested', stop_requested)::text as json`;

type Row = Omit<AuditEntry, 'at' | 'updatedAt'> & { readonly at: number; readonly updatedAt: number };

const toEntry = ({ details, ...row }: Row): AuditEntry => ({
  ...row,
  at: new Date(row.at),
  updatedAt: new Date(row.updatedAt),
  ...(details === null ? {} : { details }),
});

/** Details are read only by people, so characters that PostgreSQL cannot store are replaced. */
const jsonText = (value: unknown): string | null =>
  value === undefined
    ? null
    : JSON.stringify(value, (_key, item: unknown) => (typeof item === 'string' ? readable(item) : item));

/** $1 limit · $2 time and $3 id of the last entry of the previous page */
const auditListStatement = ({ names: { audit } }: Sql, { after }: AuditPageRequest): string => `
  select ${ENTRY} from ${audit}
  ${after === undefined ? '' : 'where (at, id) < ($2::text::timestamptz, $3::text)'}
  order by at desc, id desc limit $1::integer`;

export function auditStore(sql: () => Sql): AuditStore {
  const one = async (text: string, values: (string | number | null)[]): Promise<AuditEntry | undefined> => {
    const [row] = await rows<Row>(sql().driver, text, values);
    return row && toEntry(row);
  };
  const get = (id: string): Promise<AuditEntry | undefined> =>
    one(`select ${ENTRY} from ${sql().names.audit} where id = $1::text`, [id]);

  return {
    append: ({ id, actor, action, target, outcome, details }, keepMs) =>
      run('save an audit entry', async () => {
        const text = `insert into ${sql().names.audit} (id, actor, action, target, outcome, details, expires_at)
          values ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text::jsonb,
            statement_timestamp() + $7::double precision * interval '1 millisecond')
          on conflict (id) do nothing returning ${ENTRY}`;
        const texts = [id, actor, action, target, outcome].map(readable);
        return ((await one(text, [...texts, jsonText(details), keepMs])) ?? (await get(id))) as AuditEntry;
      }),
    amend: (id, { outcome, details, stopRequested }) =>
      run('change an audit entry', () =>
        one(
          `update ${sql().names.audit} set updated_at = statement_timestamp(),
             outcome = coalesce($2::text, outcome), details = coalesce($3::text::jsonb, details),
             stop_requested = stop_requested or $4::text = 'stop'
           where id = $1::text returning ${ENTRY}`,
          [
            id,
            outcome === undefined ? null : readable(outcome),
            jsonText(details),
            stopRequested === true ? 'stop' : '',
          ],
        ),
      ),
    get: (id) => run('read an audit entry', () => get(id)),
    list: (page) =>
      run('read the audit log', async () => {
        const { limit, after } = page;
        const values = [limit + 1, ...(after === undefined ? [] : [timeText(after.at), after.id])];
        const found = await rows<Row>(sql().driver, auditListStatement(sql(), page), values);
        return { entries: found.slice(0, limit).map(toEntry), more: found.length > limit };
      }),
    sweep: () =>
      run('sweep the audit log', async () => {
        const { driver, names } = sql();
        await driver.query(`delete from ${names.audit} where expires_at <= statement_timestamp()`);
      }),
  };
}
