import type { ScopeDefinition, ScopeKind, ScopeLimits, ScopeRef } from '../../store/port.js';
import type { Holder, Scope } from '../../store/limits/scope.js';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { rows } from '../connection/rows.js';

/** The part of a scope that is stored as one JSON value. Times are in milliseconds. */
interface StoredState extends Pick<Scope, 'rate' | 'breaker' | 'failures' | 'contended'> {
  readonly holders: Readonly<Record<string, StoredHolder>>;
}

interface StoredHolder extends Omit<Holder, 'last'> {
  readonly last: Omit<Holder['last'], 'at' | 'notAfter'> & { readonly at: number; readonly notAfter: number };
}

interface Row extends ScopeDefinition {
  readonly id: string;
  readonly kind: ScopeKind;
  readonly name: string;
  readonly limits: ScopeLimits;
  readonly rev: number;
  readonly state: StoredState;
  /** Raised by every write. */
  readonly version: number;
  readonly now: number;
}

/** A scope as it was read. */
export interface Read {
  readonly id: string;
  readonly ref: ScopeRef;
  readonly definition: ScopeDefinition;
  readonly scope: Scope;
  readonly version: number;
  /** The server's time, in milliseconds. */
  readonly now: number;
}

const CLOCK = 'floor(extract(epoch from clock_timestamp()) * 1000)';
/** How long the process of a transaction that locks scopes may be paused: others wait for it. */
const PAUSED_MS = 2_000;

export function storedState({ holders, rate, breaker, failures, contended }: Scope): string {
  const stored = [...holders].map(([life, { last, ...holder }]) => {
    const { at, notAfter, ...rest } = last;
    return [life, { ...holder, last: { ...rest, at: at.getTime(), notAfter: notAfter.getTime() } }] as const;
  });
  return JSON.stringify({ holders: Object.fromEntries(stored), rate, breaker, failures, contended });
}

function readOf({ id, kind, name, limits, code, set, rev, state, version, now }: Row): Read {
  const { holders, ...rest } = state;
  const live = Object.entries(holders).map(([life, { last, ...holder }]) => {
    const times = { at: new Date(last.at), notAfter: new Date(last.notAfter) };
    return [life, { ...holder, last: { ...last, ...times } }] as const;
  });
  return {
    id,
    ref: { kind, name },
    definition: { limits, code, set },
    scope: { ...rest, limits, rev, holders: new Map(live) },
    version,
    now,
  };
}

/** Which scopes: a condition with one parameter, and its value. */
export type Which = readonly [condition: string, value: string | null];

const selection = ({ names }: Sql, condition: string): string => `
    select json_build_object('id', scope, 'kind', kind, 'name', name, 'limits', limits, 'code', code,
      'set', changes, 'rev', rev, 'state', state, 'version', version, 'now', ${CLOCK})::text as json
    from ${names.table('limits')} where ${condition}`;

export async function readScopes(sql: Sql, [condition, value]: Which): Promise<readonly Read[]> {
  return (await rows<Row>(sql.driver.prepared, selection(sql, condition), [value])).map(readOf);
}

/**
 * Locks scopes until the transaction ends, in one order, so that two of them never wait for each other. The server ends
 * the transaction of a process that is paused meanwhile: it must not hold up others.
 */
async function lockScopes(sql: Sql, on: Queryable, [condition, value]: Which): Promise<readonly Read[]> {
  const text = `${selection(sql, condition)} and set_config('idle_in_transaction_session_timeout', '${String(PAUSED_MS)}', true) <> ''
    order by scope for update`;
  return (await rows<Row>(on, text, [value])).map(readOf);
}

export async function serverNow({ driver }: Sql): Promise<number> {
  const [now] = await rows<number>(driver.prepared, `select ${CLOCK}::text as json`);
  return now ?? 0;
}

/** Writes the states whose scopes have not changed since they were read. Returns their ids. */
async function write(
  { names }: Sql,
  on: Queryable,
  changed: readonly (readonly [Read, Scope])[],
): Promise<ReadonlySet<string>> {
  const table = names.table('limits');
  // Rows are locked in one order, so that two calls never wait for each other.
  const text = `with given as materialized (
      select * from json_to_recordset($1::text::json) as g(scope text, state jsonb, version bigint)
    ), same as materialized (
      select l.scope from ${table} l join given g on l.scope = g.scope where l.version = g.version
      order by l.scope for update of l
    )
    update ${table} l set state = g.state, version = l.version + 1 from given g
    where l.scope = g.scope and l.version = g.version and l.scope in (select scope from same)
    returning to_json(l.scope)::text as json`;
  const given = changed.map(
    ([{ id, version }, scope]) =>
      `{"scope":${JSON.stringify(id)},"state":${storedState(scope)},"version":${String(version)}}`,
  );
  return new Set(await rows<string>(on, text, [`[${given.join(',')}]`]));
}

interface Changed {
  /** The scopes that were written, as they were before. */
  readonly written: readonly Read[];
  /** The ids of those that others changed since they were read. */
  readonly left: ReadonlySet<string>;
}

async function writeChanges(
  sql: Sql,
  on: Queryable,
  found: readonly Read[],
  change: (one: Read) => Scope | undefined,
): Promise<Changed> {
  const changed = found.flatMap((one) => {
    const after = change(one);
    return after === undefined ? [] : [[one, after] as const];
  });
  const done = changed.length === 0 ? new Set<string>() : await write(sql, on, changed);
  const [written, left] = [true, false].map((isDone) =>
    changed.map(([one]) => one).filter(({ id }) => done.has(id) === isDone),
  ) as [Read[], Read[]];
  return { written, left: new Set(left.map(({ id }) => id)) };
}

/**
 * Reads scopes, lets `change` compute what becomes of each, and writes it if the scope is still as it was read. No lock
 * is held meanwhile: a process that is paused between the two holds up no other. Scopes that others have changed are
 * locked for the second try, so many that ask at once take their turns and do not try in vain again and again. `change`
 * may return undefined for a scope that stays as it is.
 */
export async function changeScopes(
  sql: Sql,
  which: (left?: ReadonlySet<string>) => Which,
  change: (one: Read) => Scope | undefined,
): Promise<readonly Read[]> {
  const { prepared } = sql.driver;
  const { written, left } = await writeChanges(sql, prepared, await readScopes(sql, which()), change);
  if (left.size === 0) return written;
  const rest = await sql.driver.transaction(async (on) =>
    writeChanges(sql, on, await lockScopes(sql, on, which(left)), change),
  );
  return [...written, ...rest.written];
}
