import type {
  KeyRule,
  LimitStore,
  ScopeDefinition,
  ScopeLimits,
  ScopeRecord,
  ScopeRef,
} from '../../store/port.js';

/** What the code of one service says. */
interface CodeVersion {
  readonly limits: ScopeLimits;
  /** ISO text. */
  readonly at: string;
  /** The instance that said it. */
  readonly by: string;
}

/** What is stored as `ScopeDefinition.code`: the latest start wins, and the doctor reports `other`. */
export interface StoredCode extends CodeVersion {
  /** The latest definition by another instance that was different. */
  readonly other?: CodeVersion;
}

/** What an operator changed, by field; null takes a limit away. Stored as `ScopeDefinition.set`. */
export interface StoredChanges {
  readonly concurrency?: number | null;
  readonly rate?: ScopeLimits['rate'] | null;
  readonly breaker?: ScopeLimits['breaker'] | null;
  readonly perKey?: Nullable<Pick<KeyRule, 'concurrency' | 'rate'>>;
  /** When it was changed last. ISO text. */
  readonly at?: string;
}

type Nullable<T> = { readonly [K in keyof T]?: T[K] | null };

/** Adds changes to earlier ones, by field. */
export const mergedChanges = (before: StoredChanges | null, changes: StoredChanges): StoredChanges => ({
  ...before,
  ...changes,
  ...(before?.perKey === undefined && changes.perKey === undefined
    ? {}
    : { perKey: { ...before?.perKey, ...changes.perKey } }),
});

/** What holds: the code's limits with the changes of an operator. */
export function effectiveLimits(code: ScopeLimits | undefined, set: StoredChanges | null): ScopeLimits {
  const merged: Record<string, unknown> = { ...code, ...set, at: undefined };
  if (code?.perKey !== undefined) merged['perKey'] = withoutNulls({ ...code.perKey, ...set?.perKey });
  else Reflect.deleteProperty(merged, 'perKey');
  return withoutNulls(merged);
}

const withoutNulls = (fields: object): object =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));

export const codeOf = ({ code }: ScopeDefinition): StoredCode | null => code as StoredCode | null;
export const changesOf = ({ set }: ScopeDefinition): StoredChanges | null => set as StoredChanges | null;

const sameLimits = (a: ScopeLimits = {}, b: ScopeLimits = {}): boolean => canonical(a) === canonical(b);

/** Stores may return fields in another order. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) =>
    typeof part === 'object' && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}

/** Changes the definition of a scope, again until no one else changed it meanwhile. Null: leave it as it is. */
export async function redefine(
  store: LimitStore,
  scope: ScopeRef,
  change: (now: ScopeRecord | undefined, at: Date) => ScopeDefinition | null,
): Promise<void> {
  for (;;) {
    const { now, scopes } = await store.read([scope]);
    const [record] = scopes;
    const wanted = change(record, now);
    if (wanted === null) return;
    if ((await store.define(scope, wanted, record?.rev ?? null)) === 'written') return;
  }
}

/** Says what the code of this instance defines; `limits` is undefined if it defines none. */
export async function publish(
  store: LimitStore,
  scope: ScopeRef,
  limits: ScopeLimits | undefined,
  by: string,
): Promise<void> {
  await redefine(store, scope, (record, at) => {
    const before = record === undefined ? null : codeOf(record);
    const code = codeAfter(before, { limits: limits ?? {}, at: at.toISOString(), by });
    if (code === null) return null;
    const set = record === undefined ? null : changesOf(record);
    return { limits: effectiveLimits(limits, set), code, set };
  });
}

/** Null: nothing to write. */
function codeAfter(before: StoredCode | null, next: CodeVersion): StoredCode | null {
  if (before === null) return sameLimits(next.limits) ? null : next;
  const { other, ...said } = before;
  // It said something else before, and agrees now.
  if (sameLimits(said.limits, next.limits)) return other?.by === next.by ? said : null;
  const left = said.by === next.by ? other : said;
  const agrees = left === undefined || left.by === next.by || sameLimits(left.limits, next.limits);
  return agrees ? next : { ...next, other: left };
}
