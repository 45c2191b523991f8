import type { Clock } from '../../core/clock.js';
import {
  scopeText,
  type KeyRule,
  type KeyUse,
  type LimitStore,
  type ScopeDefinition,
  type ScopeRef,
} from '../../store/port.js';
import { copyOf, KEYED_JOBS } from '../jobs/records.js';
import type { Table } from '../jobs/table.js';
import { keyUses, type KeysAsked } from './keys.js';
import { dropped, exchange, newScope, toScopeRecord, turned, type Scope } from '../../store/limits/scope.js';

interface Entry {
  readonly ref: ScopeRef;
  definition: ScopeDefinition;
  scope: Scope;
}

export interface MemoryLimitsOptions {
  readonly clock: Clock;
  readonly table: Table;
  /** The keys of a reactive task. */
  readonly taskKeys: (name: string, rule: KeyRule, which: KeysAsked) => readonly KeyUse[];
  readonly freed: (scopes: readonly ScopeRef[]) => void;
}

/** The limits of a memory store. Each method does its work before its first await, so each is atomic. */
export function memoryLimits({ clock, table, taskKeys, freed }: MemoryLimitsOptions): LimitStore {
  const entries = new Map<string, Entry>();
  return {
    exchange: async (life, asks) => {
      const free: ScopeRef[] = [];
      const grants = asks.map((ask) => {
        const entry = entries.get(scopeText(ask.scope));
        if (entry === undefined) return undefined;
        const { scope, grant, frees } = exchange(entry.scope, life, ask, clock.now());
        entry.scope = scope;
        if (frees) free.push(entry.ref);
        return copyOf(grant);
      });
      if (free.length > 0) freed(free);
      return grants;
    },
    read: async (refs) => {
      const now = clock.now();
      const found =
        refs === undefined ? [...entries.values()] : refs.flatMap((ref) => entries.get(scopeText(ref)) ?? []);
      return {
        now: new Date(now),
        scopes: found.map(({ ref, definition, scope }) => copyOf(toScopeRecord(ref, definition, scope, now))),
      };
    },
    revision: async () => [...entries.values()].reduce((sum, { scope }) => sum + scope.rev, 0),
    define: async (ref, definition, ifRev) => {
      const entry = entries.get(scopeText(ref));
      if ((entry?.scope.rev ?? null) !== ifRev) return 'changed';
      const { limits } = copyOf(definition);
      const scope =
        entry === undefined ? newScope(limits) : { ...entry.scope, limits, rev: entry.scope.rev + 1 };
      entries.set(scopeText(ref), { ref: copyOf(ref), definition: copyOf(definition), scope });
      if (ref.kind === 'job' && Object.keys(limits).length > 0) table.limited.add(ref.name);
      else if (ref.kind === 'job') table.limited.delete(ref.name);
      freed([ref]);
      return 'written';
    },
    drop: async (life) => {
      const now = clock.now();
      const free = [...entries.values()].filter((entry) => {
        const after = dropped(entry.scope, life, now);
        entry.scope = after ?? entry.scope;
        return after !== undefined;
      });
      if (free.length > 0) freed(free.map(({ ref }) => ref));
    },
    turnBreaker: async (ref, to) => {
      const entry = entries.get(scopeText(ref));
      const after = entry && turned(entry.scope, to, clock.now());
      if (entry === undefined || after === undefined) return false;
      entry.scope = after;
      freed([ref]);
      return true;
    },
    keys: async ({ kind, name }, rule, which) =>
      kind === 'task'
        ? taskKeys(name, rule, which)
        : keyUses(KEYED_JOBS, table.keys.get(name)?.values() ?? [], table.now(), rule, which),
  };
}
