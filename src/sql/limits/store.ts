import {
  scopeText,
  type LimitStore,
  type ScopeAsk,
  type ScopeGrant,
  type ScopeRef,
} from '../../store/port.js';
import { dropped, exchange, newScope, toScopeRecord, turned } from '../../store/limits/scope.js';
import { freedMessages } from '../cluster/notifier.js';
import type { Sql } from '../connection/connection.js';
import { run } from '../connection/errors.js';
import { rows } from '../connection/rows.js';
import { isStorable } from '../connection/values.js';
import { keyUses, repairKeys } from './keys.js';
import { changeScopes, readScopes, serverNow, storedState, type Which } from './scopes.js';

const OF_SCOPES = 'scope = any(array(select json_array_elements_text($1::text::json)))';

const these = (ids: readonly string[]): Which => [OF_SCOPES, JSON.stringify(ids.filter(isStorable))];

function freed({ notifier }: Sql, scopes: readonly ScopeRef[]): void {
  if (scopes.length > 0) for (const text of freedMessages(scopes)) notifier.notify(text);
}

type Grant = ScopeGrant | 'stale' | undefined;

async function ask(sql: Sql, life: string, asks: readonly ScopeAsk[]): Promise<readonly Grant[]> {
  const ids = asks.map(({ scope }) => scopeText(scope));
  const grants = asks.map((): Grant => undefined);
  const frees = new Map<string, boolean>();
  const written = await changeScopes(
    sql,
    (left) => these(left === undefined ? ids : [...left]),
    ({ id, scope: before, now }) => {
      let scope = before;
      frees.set(id, false);
      for (const [at, one] of asks.entries()) {
        if (ids[at] !== id) continue;
        const answer = exchange(scope, life, one, now);
        scope = answer.scope;
        grants[at] = answer.grant;
        if (answer.frees) frees.set(id, true);
      }
      return scope === before ? undefined : scope;
    },
  );
  freed(
    sql,
    written.filter(({ id }) => frees.get(id) === true).map(({ ref }) => ref),
  );
  return grants;
}

async function drop(sql: Sql, life: string): Promise<void> {
  const ofLife = `(state -> 'holders' ? $1::text or state #>> '{breaker,by}' = $1::text)`;
  const written = await changeScopes(
    sql,
    () => [ofLife, life],
    ({ scope, now }) => dropped(scope, life, now),
  );
  freed(
    sql,
    written.map(({ ref }) => ref),
  );
}

async function turnBreaker(sql: Sql, ref: ScopeRef, to: 'open' | 'closed'): Promise<boolean> {
  const written = await changeScopes(
    sql,
    () => these([scopeText(ref)]),
    ({ scope, now }) => turned(scope, to, now),
  );
  freed(
    sql,
    written.map((one) => one.ref),
  );
  return written.length > 0;
}

const define =
  (sql: Sql): LimitStore['define'] =>
  async (ref, { limits, code, set }, ifRev) => {
    const table = sql.names.table('limits');
    const values = [scopeText(ref), ...[limits, code, set].map((part) => JSON.stringify(part ?? null))];
    const text =
      ifRev === null
        ? `insert into ${table} (scope, limits, code, changes, kind, name, rev, state, version)
           values ($1::text, $2::text::jsonb, $3::text::jsonb, $4::text::jsonb, $5::text, $6::text, 1, $7::text::jsonb, 1)
           on conflict do nothing returning 'true' as json`
        : `update ${table} set limits = $2::text::jsonb, code = $3::text::jsonb, changes = $4::text::jsonb,
             rev = rev + 1, version = version + 1
           where scope = $1::text and rev = $5::integer returning 'true' as json`;
    const rest = ifRev === null ? [ref.kind, ref.name, storedState(newScope(limits))] : [ifRev];
    const written = await rows(sql.driver, text, [...values, ...rest]);
    if (written.length === 0) return 'changed';
    freed(sql, [ref]);
    return 'written';
  };

/** Limits of the cluster. Each scope is one row, whose transitions are those of src/store/limits/scope.ts. */
export function limitStore(sql: () => Sql): LimitStore {
  return {
    exchange: (life, asks) => run('take permits', () => ask(sql(), life, asks)),
    read: (refs) =>
      run('read limits', async () => {
        const found = await readScopes(
          sql(),
          refs === undefined ? ['$1::text is null', null] : these(refs.map(scopeText)),
        );
        const now = found[0]?.now ?? (await serverNow(sql()));
        const scopes = found.map(({ ref, definition, scope }) => toScopeRecord(ref, definition, scope, now));
        return { now: new Date(now), scopes };
      }),
    revision: () =>
      run('read limits', async () => {
        const { driver, names } = sql();
        const text = `select coalesce(sum(rev), 0)::text as json from ${names.table('limits')}`;
        return (await rows<number>(driver.prepared, text, []))[0] ?? 0;
      }),
    define: (...given) => run('define a limit', () => define(sql())(...given)),
    drop: (life) => run('free the permits of an instance', () => drop(sql(), life)),
    turnBreaker: (ref, to) => run('turn a breaker', () => turnBreaker(sql(), ref, to)),
    keys: (scope, rule, which) => run('read keys', () => keyUses(sql(), scope, rule, which)),
    repairKeys: (scope, rule) => run('repair keys', () => repairKeys(sql(), scope, rule)),
  };
}
