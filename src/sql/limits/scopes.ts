import { pause } from '../../core/clock.js';
import { StoreError } from '../../core/errors.js';
import type { ScopeDefinition, ScopeKind, ScopeLimits, ScopeRef } from '../../store/port.js';
import type { Holder, Scope } from '../../store/scope.js';
import type { Sql } from '../connection/connection.js';
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
/** Somebody else's write wins each time that this one does not, so this many in a row are a fault. */
const TRIES = 200;
const LONGEST_PAUSE_MS = 25;

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

/** Reads the scopes that match a condition, which has one parameter. */
export async function readScopes(
  { driver, names }: Sql,
  condition: string,
  value: string | null,
): Promise<readonly Read[]> {
  const text = `select json_build_object('id', scope, 'kind', kind, 'name', name, 'limits', limits, 'code', code,
      'set', changes, 'rev', rev, 'state', state, 'version', version, 'now', ${CLOCK})::text as json
    from ${names.table('limits')} where ${condition}`;
  return (await rows<Row>(driver.prepared, text, [value])).map(readOf);
}

export async function serverNow({ driver }: Sql): Promise<number> {
  const [now] = await rows<number>(driver.prepared, `select ${CLOCK}::text as json`);
  return now ?? 0;
}

/** Writes the states whose scopes have not changed since they were read. Returns their ids. */
async function write(
  { driver, names }: Sql,
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
  return new Set(await rows<string>(driver.prepared, text, [`[${given.join(',')}]`]));
}

/**
 * Reads scopes, lets `change` compute what becomes of each, and writes it if the scope is still as it was read; those
 * that are not are read again. No lock is held meanwhile: a process that is paused between the two holds up no other.
 * `change` may return undefined for a scope that stays as it is.
 */
export async function changeScopes(
  sql: Sql,
  read: (left: ReadonlySet<string> | undefined) => Promise<readonly Read[]>,
  change: (one: Read) => Scope | undefined,
): Promise<readonly Read[]> {
  let left: ReadonlySet<string> | undefined;
  const written: Read[] = [];
  for (let tries = 0; tries < TRIES; tries += 1) {
    const found = await read(left);
    const changed = found.flatMap((one) => {
      const after = change(one);
      return after === undefined ? [] : [[one, after] as const];
    });
    const done = changed.length === 0 ? new Set<string>() : await write(sql, changed);
    written.push(...changed.filter(([{ id }]) => done.has(id)).map(([one]) => one));
    left = new Set(changed.map(([{ id }]) => id).filter((id) => !done.has(id)));
    if (left.size === 0) return written;
    await pause(sql.clock, Math.random() * Math.min(LONGEST_PAUSE_MS, tries + 1));
  }
  throw new StoreError('limits: a limit was changed by others many times in a row; try again.', {
    transient: true,
  });
}
