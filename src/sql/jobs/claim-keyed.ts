import { createHash } from 'node:crypto';
import type { ClaimRequest, KeyRule, NameLimit } from '../../store/port.js';
import { briefJson, type BriefRow } from '../cluster/cluster.js';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { run } from '../connection/errors.js';
import { isStorable, timeText } from '../connection/values.js';
import { CLAIMED_BY_KEY } from './record.js';

/** What the function answers of each name. `held`: see `ClaimAnswer.heldUp`. */
interface NameAnswer {
  readonly name: string;
  readonly more: boolean;
  readonly held?: number | null;
}

interface Summary {
  readonly at: number;
  readonly names: readonly NameAnswer[];
}

export interface ClaimedByKeys {
  readonly cluster: BriefRow;
  /** The time of the claim by the server's clock, in milliseconds. */
  readonly at: number;
  readonly names: readonly NameAnswer[];
  readonly texts: readonly string[];
}

/** $1 names with their rules · $2 limit over all names · $3 the statement that writes the jobs */
const keyedStatement = (sql: Sql): string => `
  select json_build_object('cluster', ${briefJson(sql)})::text as json
  union all
  select c from ${sql.names.table('claim_by_keys')}($1::text::jsonb, $2::integer, $3::text) c`;

/** Runs inside the function, so the values of this claim are part of its text. $1 the places · $2 the time */
const writing = ({ names: { jobs } }: Sql, { instance, token, heartbeatMs }: ClaimRequest): string => `
  update ${jobs} j set status = 'processing', claimed_by = ${quotedText(instance.instanceId)},
    lease_token = ${quotedText(token)}, heartbeat_interval = ${String(heartbeatMs)}, locked_at = $2, updated_at = $2
  where j.ctid = any($1)
  returning ${CLAIMED_BY_KEY} as json`;

const quotedText = (text: string): string =>
  `convert_from('\\x${Buffer.from(text).toString('hex')}', 'UTF8')`;

/** What the function needs to know of a rule. `hold`: the head holds its key although it is not due. */
function storedRule({ concurrency, rate, order, whileRetrying = 'hold' }: KeyRule): object {
  return {
    ...(order === undefined ? {} : { ordered: true, hold: whileRetrying === 'hold' }),
    ...(order === undefined && concurrency === undefined
      ? {}
      : { most: order === undefined ? concurrency : 1 }),
    ...(rate === undefined ? {} : { limit: rate.limit, per: rate.perMs, burst: rate.burst }),
  };
}

const RULE_DIGITS = 12;

/** Claims whose names have limits per key. */
export async function claimByKeys(
  sql: Sql,
  request: ClaimRequest,
  keyed: readonly (readonly [string, NameLimit])[],
  total: number,
): Promise<ClaimedByKeys> {
  const wanted = keyed
    .filter(([name]) => isStorable(name))
    .map(([name, { max, notAfter, keys = {}, turns }]) => {
      const rule = storedRule(keys);
      const by = createHash('sha256').update(JSON.stringify(rule)).digest('hex').slice(0, RULE_DIGITS);
      return {
        name,
        most: max,
        by_rule: by,
        // How much a claim takes of a key is no part of the rule by which keys are looked at.
        rule: turns === undefined ? rule : { ...rule, turns },
        ...(notAfter === undefined ? {} : { until: timeText(notAfter) }),
      };
    });
  const values = [JSON.stringify(wanted), total, writing(sql, request)];
  const ask = async (on: Queryable): Promise<readonly string[]> =>
    (await on.query(keyedStatement(sql), values)).rows.map(({ json }) => String(json));
  return run('claim', async () => {
    const told = await ask(sql.driver.prepared);
    // The function needs READ COMMITTED, and the default of this database is another one.
    const texts = told[1] === 'null' ? await sql.driver.transaction(ask) : told;
    const { cluster } = JSON.parse(texts[0] ?? '') as { readonly cluster: BriefRow };
    return { cluster, ...(JSON.parse(texts[1] ?? '') as Summary), texts: texts.slice(2) };
  });
}
