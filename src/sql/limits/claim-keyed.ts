import { createHash } from 'node:crypto';
import type { Work } from '../../core/records/work.js';
import type { ClaimAnswer, ClaimRequest, KeyRule, NameLimit } from '../../store/port.js';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { isStorable, timeText } from '../connection/values.js';
import type { KeyedTable } from '../schema/migrations/keyed-table.js';

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

export interface ClaimedByKeys<Brief> {
  readonly cluster: Brief;
  /** The time of the claim by the server's clock, in milliseconds. */
  readonly at: number;
  readonly names: readonly NameAnswer[];
  /** What the statement that writes returned. */
  readonly texts: readonly string[];
}

export interface KeyedClaim {
  readonly work: KeyedTable;
  readonly limits: readonly (readonly [string, NameLimit])[];
  readonly total: number;
  /** A SQL expression: what is read of the cluster. */
  readonly brief: string;
  /** Writes the rows at the places $1, at the time $2. It runs inside a function, so it has no other parameters. */
  readonly writing: string;
}

/** $1 names with their rules · $2 limit over all names · $3 the statement that writes */
const keyedStatement = ({ work, brief }: KeyedClaim): string => `
  select json_build_object('cluster', ${brief})::text as json
  union all
  select c from ${work.call('claim_by_keys')}($1::text::jsonb, $2::integer, $3::text) c`;

/** A text as part of a statement. */
export const quotedText = (text: string): string =>
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

/** Claims whose names have limits per key: one statement. */
export async function claimByKeys<Brief>({ driver }: Sql, claim: KeyedClaim): Promise<ClaimedByKeys<Brief>> {
  const wanted = claim.limits
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
  const values = [JSON.stringify(wanted), claim.total, claim.writing];
  const ask = async (on: Queryable): Promise<readonly string[]> =>
    (await on.query(keyedStatement(claim), values)).rows.map(({ json }) => String(json));
  const told = await ask(driver.prepared);
  // The function needs READ COMMITTED, and the default of this database is another one.
  const texts = told[1] === 'null' ? await driver.transaction(ask) : told;
  const { cluster } = JSON.parse(texts[0] ?? '') as { readonly cluster: Brief };
  return { cluster, ...(JSON.parse(texts[1] ?? '') as Summary), texts: texts.slice(2) };
}

type Limits = ClaimRequest['limits'];

/** How a store claims some of the names of a request. */
export interface ClaimParts<W extends Work> {
  readonly keyed: (
    limits: readonly (readonly [string, NameLimit])[],
    total: number,
  ) => Promise<ClaimAnswer<W>>;
  readonly plain: (
    limits: readonly (readonly [string, NameLimit])[],
    total: number,
  ) => Promise<ClaimAnswer<W>>;
  readonly inOrder: (a: W, b: W) => number;
}

/** Names with limits per key and names without: one after the other, and chance says which is first. */
export async function claimParts<W extends Work>(
  limits: Limits,
  total: number,
  { keyed, plain, inOrder }: ClaimParts<W>,
): Promise<ClaimAnswer<W>> {
  const all = [...limits];
  const withKeys = all.filter(([, { keys }]) => keys !== undefined);
  const others = all.filter(([, { keys }]) => keys === undefined);
  if (withKeys.length === 0) return plain(all, total);
  if (others.length === 0) return keyed(all, total);
  const isKeyedFirst = Math.random() * all.length < withKeys.length;
  const share = Math.ceil((total * (isKeyedFirst ? withKeys : others).length) / all.length);
  const first = isKeyedFirst ? await keyed(withKeys, share) : await plain(others, share);
  const left = total - first.jobs.length;
  if (left === 0) return { ...first, more: true };
  const second = isKeyedFirst ? await plain(others, left) : await keyed(withKeys, left);
  const heldUp = first.heldUp ?? second.heldUp;
  return {
    jobs: [...first.jobs, ...second.jobs].sort(inOrder),
    asked: first.asked + second.asked,
    more: first.more || second.more,
    ...(heldUp === undefined ? {} : { heldUp }),
    cluster: second.cluster,
  };
}

/** Names whose keys hold up due work, as `ClaimAnswer.heldUp`; absent if there is none. */
export function heldUpOf(names: readonly NameAnswer[]): Pick<ClaimAnswer, 'heldUp'> {
  const held = names.flatMap(({ name, more, held }) =>
    more || held === undefined ? [] : [[name, held === null ? null : new Date(held)] as const],
  );
  return held.length === 0 ? {} : { heldUp: new Map(held) };
}
