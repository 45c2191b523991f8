import { OptionError } from '../../core/errors.js';
import { checkInteger, checkKeys, checkOneOf, checkText, show, suggestion } from '../../core/options.js';
import {
  changesOf,
  codeOf,
  effectiveLimits,
  mergedChanges,
  redefine,
  type StoredChanges,
} from '../../engine/limits/definitions.js';
import {
  checkConcurrency,
  compileBreaker,
  compileRate,
  type BreakerOptions,
  type RateOptions,
} from '../../engine/limits/options.js';
import {
  isAlive,
  isKeyedScope,
  scopeText,
  type Depth,
  type KeyUse,
  type LimitStore,
  type ScopeKind,
  type ScopeLimits,
  type ScopeRecord,
  type ScopeRef,
  type Store,
} from '../../store/port.js';
import type { TaskPlan } from '../../store/reactive/reactive.js';

/** A limit of a job or a shared limit by its name; of other work by kind and name. */
export type LimitTarget = string | { readonly kind: ScopeKind; readonly name: string };

/** A limit as it holds in the cluster. */
export interface LimitState {
  readonly kind: ScopeKind;
  readonly name: string;
  /** What holds now; durations in milliseconds. */
  readonly limits: ScopeLimits;
  readonly use: {
    /** How much of it runs, or is about to. Absent for a document schedule without a limit of its own. */
    readonly running?: number;
    /** Starts that count against the rate now. */
    readonly startsInWindow: number;
    /** How much is due and waits. Of document schedules: of those that run in this process. */
    readonly waiting: number;
  };
  /** `set`: an operator changed it; `reset` brings the code's value back. */
  readonly source: 'code' | 'set';
  /** With `source: 'set'`: what `reset` brings back. */
  readonly code?: ScopeLimits;
  /** With `source: 'set'`: when it was changed last. */
  readonly setAt?: Date;
  /** A live instance whose code defines it differently; the latest start wins. */
  readonly differs?: {
    readonly limits: ScopeLimits;
    /** When that instance said so. */
    readonly at: Date;
    /** The instance. */
    readonly by: string;
  };
  /** The state of its breaker; absent without one. */
  readonly breaker?: ScopeRecord['breaker'];
}

/** Changes of a limit, by field; null takes a limit away. */
export interface LimitChanges {
  /** How much may run at once. Default: unchanged. */
  readonly concurrency?: number | null;
  /** How much may start per time. Default: unchanged. */
  readonly rate?: RateOptions | null;
  /** When the breaker opens. Default: unchanged. */
  readonly breaker?: BreakerOptions | null;
  /** Limits of each key, of a name whose definition has `perKey`. Default: unchanged. */
  readonly perKey?: {
    /** How much of one key may run at once. Default: unchanged. */
    readonly concurrency?: number | null;
    /** How much of one key may start per time. Default: unchanged. */
    readonly rate?: RateOptions | null;
  };
}

/** What `limits.keys` takes. */
export interface KeysOptions {
  /** The most keys to return, up to 1,000. Default: 10. */
  readonly limit?: number;
}

const KINDS = ['job', 'task', 'documents', 'shared'] as const;
const DEPTH_CAP = 10_000;
const KEYS_SHOWN = 10;
const MOST_KEYS_SHOWN = 1_000;

export interface LimitsOptions {
  readonly store: () => Promise<Store>;
  /** What this process defines, which may get a limit although its definition has none. */
  readonly scopes: () => Iterable<ScopeRef>;
  /** The reactive tasks that have a handler here. The store finds the others itself. */
  readonly plans: () => ReadonlyMap<string, TaskPlan>;
  /** The due documents of each schedule that runs here. */
  readonly documents: (cap: number) => Promise<readonly Depth[]>;
  /** A breaker was turned by hand. */
  readonly turned: (scope: ScopeRef, to: 'open' | 'closed', until?: Date) => void;
}

/** Shows limits with their use, and changes them while everything runs. */
export class Limits {
  readonly #options: LimitsOptions;

  constructor(options: LimitsOptions) {
    this.#options = options;
  }

  /** Returns all limits, by kind and name, with what they let through now. */
  async list(): Promise<readonly LimitState[]> {
    return limitStates(await this.#options.store(), this.#options);
  }

  /** Returns one limit, or undefined if there is none of that name. */
  async get(target: LimitTarget): Promise<LimitState | undefined> {
    const wanted = refsOf('limits.get', target);
    const all = await this.list();
    return all.find((one) => wanted.some(({ kind, name }) => kind === one.kind && name === one.name));
  }

  /**
   * Changes a limit in the whole cluster, field by field, until `reset`. It outlives restarts. Running work goes on; a
   * lower limit holds as soon as enough of it has ended.
   */
  async set(target: LimitTarget, changes: LimitChanges): Promise<LimitState> {
    const where = `limits.set(${show(typeof target === 'string' ? target : target.name)})`;
    const compiled = compileChanges(where, changes);
    const { perKey = {}, ...own } = compiled;
    if (Object.keys(own).length + Object.keys(perKey).length === 0)
      throw new OptionError(`${where}: nothing to change; pass concurrency, rate, breaker or perKey.`);
    return this.#redefine(where, target, (record) => {
      if (compiled.perKey !== undefined && codeOf(record)?.limits.perKey === undefined)
        throw new OptionError(
          `${where}: perKey needs a definition with limits.perKey, which says what the key is.`,
        );
      if (typeof compiled.perKey?.concurrency === 'number' && record.limits.perKey?.order !== undefined)
        throw new OptionError(
          `${where}: order: 'fifo' runs one job of a key at a time; leave perKey.concurrency out.`,
        );
      return mergedChanges(changesOf(record), compiled);
    });
  }

  /** Brings the values of the code back. */
  reset(target: LimitTarget): Promise<LimitState> {
    const where = `limits.reset(${show(typeof target === 'string' ? target : target.name)})`;
    return this.#redefine(where, target, () => null);
  }

  /**
   * Returns the keys of a job or a reactive task that have due work, those that wait longest first. Empty for one
   * without limits per key.
   */
  async keys(target: LimitTarget, options: KeysOptions = {}): Promise<readonly KeyUse[]> {
    const where = `limits.keys(${show(typeof target === 'string' ? target : target.name)})`;
    checkKeys(where, options, ['limit']);
    const limit = checkInteger(where, 'limit', options.limit ?? KEYS_SHOWN, 1, MOST_KEYS_SHOWN);
    const store = await this.#options.store();
    const limits = limitsOf(store);
    const { scopes } = await limits.read();
    const ref = await this.#known(where, store, scopes, refsOf(where, target).slice(0, 1));
    const rule = recordOf(scopes, ref)?.limits.perKey;
    return rule === undefined || !isKeyedScope(ref) ? [] : limits.keys(ref, rule, { limit });
  }

  /**
   * Opens the breaker of a limit for its whole pause, or closes it and forgets the failures, in the
   * whole cluster.
   */
  async breaker(target: LimitTarget, to: 'open' | 'closed'): Promise<LimitState> {
    const where = `limits.breaker(${show(typeof target === 'string' ? target : target.name)})`;
    const refs = refsOf(where, target);
    checkOneOf(where, 'to', to, ['open', 'closed'] as const);
    const store = await this.#options.store();
    const limits = limitsOf(store);
    const ref = await this.#known(where, store, (await limits.read()).scopes, refs);
    if (!(await limits.turnBreaker(ref, to)))
      throw new OptionError(
        `${where}: it has no breaker. Give its definition one, or add one with limits.set.`,
      );
    const state = await stateIn(store, ref, this.#options);
    this.#options.turned(ref, to, state.breaker?.until);
    return state;
  }

  async #redefine(
    where: string,
    target: LimitTarget,
    change: (record: ScopeRecord) => StoredChanges | null,
  ): Promise<LimitState> {
    const store = await this.#options.store();
    const limits = limitsOf(store);
    const ref = await this.#known(where, store, (await limits.read()).scopes, refsOf(where, target));
    await redefine(limits, ref, (record = emptyRecord(ref), at) => {
      const changed = change(record);
      const set = changed === null ? null : { ...changed, at: at.toISOString() };
      const code = codeOf(record);
      return { limits: effectiveLimits(code?.limits, set), code, set };
    });
    return stateIn(store, ref, this.#options);
  }

  /** The scope that is meant; throws for a name that nobody knows. */
  async #known(
    where: string,
    store: Store,
    scopes: readonly ScopeRecord[],
    refs: readonly ScopeRef[],
  ): Promise<ScopeRef> {
    const known = refs.find((ref) => recordOf(scopes, ref) !== undefined);
    if (known !== undefined) return known;
    const defined = [...this.#options.scopes(), ...(await definedElsewhere(store))];
    const texts = new Set(refs.map(scopeText));
    const meant = defined.find((one) => texts.has(scopeText(one)));
    if (meant !== undefined) return { kind: meant.kind, name: meant.name };
    const kinds = new Set(refs.map(({ kind }) => kind));
    const names = [...defined, ...scopes.map(({ scope }) => scope)].filter(({ kind }) => kinds.has(kind));
    const { kind, name } = refs[0] as ScopeRef;
    const hint = suggestion(name, [...new Set(names.map((one) => one.name))]);
    throw new OptionError(`${where}: there is no limit or ${WORDS[kind]} of this name.${hint}`);
  }
}

/** The jobs and tasks of all registered instances. */
async function definedElsewhere(store: Store): Promise<readonly ScopeRef[]> {
  const { instances } = await store.instances.list();
  return instances.flatMap(({ names, tasks }) => [
    ...names.map((name) => ({ kind: 'job' as const, name })),
    ...tasks.map(({ task }) => ({ kind: 'task' as const, name: task })),
  ]);
}

/** What this process knows of the work that waits. */
type Waiting = Pick<LimitsOptions, 'plans' | 'documents'>;

const NO_WORK_HERE: Waiting = { plans: () => new Map(), documents: () => Promise.resolve([]) };

/** All limits of the cluster, by kind and name. */
export async function limitStates(
  store: Store,
  waiting: Waiting = NO_WORK_HERE,
): Promise<readonly LimitState[]> {
  const { scopes } = await limitsOf(store).read();
  const [depths, live] = await Promise.all([depthsByScope(store, waiting), liveAmong(store, scopes)]);
  return scopes
    .map((record) => ({ record, differs: differenceOf(record, live) }))
    .filter(({ record, differs }) => isLimited(record) || differs !== undefined)
    .map(({ record, differs }) => ({
      ...stateOf(record, scopes, depths),
      ...(differs === undefined ? {} : { differs }),
    }))
    .sort((a, b) => order(a) - order(b) || (a.name < b.name ? -1 : 1));
}

/** Reads all scopes, since those of the work that uses a shared limit tell how much waits for it. */
async function stateIn(store: Store, ref: ScopeRef, waiting: Waiting): Promise<LimitState> {
  const { scopes } = await limitsOf(store).read();
  return stateOf(recordOf(scopes, ref) ?? emptyRecord(ref), scopes, await depthsByScope(store, waiting));
}

/** How much there is, by the text of each scope. */
async function depthsByScope(
  store: Store,
  { plans, documents }: Waiting,
): Promise<ReadonlyMap<string, Depth>> {
  const [jobs, tasks, schedules] = await Promise.all([
    store.jobs.depths({ cap: DEPTH_CAP }),
    store.reactive?.tasks(plans).depths({ cap: DEPTH_CAP }) ?? [],
    documents(DEPTH_CAP),
  ]);
  const ofKind = (kind: ScopeKind, depths: readonly Depth[]) =>
    depths.map((depth) => [scopeText({ kind, name: depth.name }), depth] as const);
  return new Map([...ofKind('job', jobs), ...ofKind('task', tasks), ...ofKind('documents', schedules)]);
}

function limitsOf({ limits, kind }: Store): LimitStore {
  if (limits !== undefined) return limits;
  throw new OptionError(`limits: the ${kind} store has no limits.`);
}

const recordOf = (scopes: readonly ScopeRecord[], { kind, name }: ScopeRef): ScopeRecord | undefined =>
  scopes.find(({ scope }) => scope.kind === kind && scope.name === name);

function refsOf(where: string, target: LimitTarget): readonly ScopeRef[] {
  if (typeof target === 'object' && (target as unknown) !== null) {
    checkKeys(where, target, ['kind', 'name']);
    return [
      { kind: checkOneOf(where, 'kind', target.kind, KINDS), name: checkText(where, 'name', target.name) },
    ];
  }
  const name = checkText(where, 'name', target);
  return [
    { kind: 'job', name },
    { kind: 'shared', name },
  ];
}

function compileChanges(where: string, changes: LimitChanges): StoredChanges {
  checkKeys(where, changes, ['concurrency', 'rate', 'breaker', 'perKey']);
  const { breaker, perKey } = changes;
  checkKeys(`${where}: perKey`, perKey, ['concurrency', 'rate']);
  return {
    ...compileNumbers(where, changes),
    ...(breaker === undefined
      ? {}
      : { breaker: breaker === null ? null : compileBreaker(`${where}: breaker`, breaker) }),
    ...(perKey === undefined ? {} : { perKey: compileNumbers(`${where}: perKey`, perKey) }),
  };
}

const compileNumbers = (
  where: string,
  { concurrency, rate }: Pick<LimitChanges, 'concurrency' | 'rate'>,
) => ({
  ...(concurrency === undefined
    ? {}
    : { concurrency: concurrency === null ? null : checkConcurrency(where, 'concurrency', concurrency) }),
  ...(rate === undefined ? {} : { rate: rate === null ? null : compileRate(`${where}: rate`, rate) }),
});

const emptyRecord = (scope: ScopeRef): ScopeRecord => ({
  scope,
  rev: 0,
  limits: {},
  code: null,
  set: null,
  holders: [],
  startsInWindow: 0,
  breaker: { state: 'closed' },
  contended: false,
});

const isLimited = ({ limits, set }: ScopeRecord): boolean => Object.keys(limits).length > 0 || set !== null;
const order = ({ kind }: LimitState): number => KINDS.indexOf(kind);

/** The live instances; none are read unless some definition differs. */
async function liveAmong(store: Store, scopes: readonly ScopeRecord[]): Promise<ReadonlySet<string>> {
  if (scopes.every((record) => codeOf(record)?.other === undefined)) return new Set();
  const { instances } = await store.instances.list();
  return new Set(instances.filter(isAlive).map(({ instanceId }) => instanceId));
}

function differenceOf(record: ScopeRecord, live: ReadonlySet<string>): LimitState['differs'] {
  const other = codeOf(record)?.other;
  if (other === undefined || !live.has(other.by)) return undefined;
  return { limits: other.limits, at: new Date(other.at), by: other.by };
}

const WORDS: Readonly<Record<ScopeKind, string>> = {
  job: 'job',
  task: 'reactive task',
  documents: 'document schedule',
  shared: 'job',
};

/** Permits count what runs under a limit of its own; what has none, such as limits per key alone, is counted itself. */
function runningOf(
  { scope, limits: { concurrency, rate, breaker }, holders }: ScopeRecord,
  depths: ReadonlyMap<string, Depth>,
): { readonly running?: number } {
  if (scope.kind === 'shared' || (concurrency ?? rate ?? breaker) !== undefined)
    return { running: holders.reduce((sum, { held }) => sum + held, 0) };
  if (scope.kind === 'documents') return {};
  const { counts = {} } = depths.get(scopeText(scope)) ?? {};
  return { running: (counts['processing'] ?? 0) + (counts['processing_dirty'] ?? 0) };
}

function stateOf(
  record: ScopeRecord,
  all: readonly ScopeRecord[],
  depths: ReadonlyMap<string, Depth>,
): LimitState {
  const { scope, limits, startsInWindow, breaker } = record;
  const users =
    scope.kind === 'shared'
      ? all.filter((one) => one.limits.shared?.includes(scope.name) === true)
      : [record];
  const waiting = users.reduce((sum, one) => sum + (depths.get(scopeText(one.scope))?.due ?? 0), 0);
  const set = changesOf(record);
  return {
    ...scope,
    limits,
    use: { ...runningOf(record, depths), startsInWindow, waiting },
    source: set === null ? 'code' : 'set',
    ...(set === null ? {} : { code: codeOf(record)?.limits ?? {} }),
    ...(set?.at === undefined ? {} : { setAt: new Date(set.at) }),
    ...(limits.breaker === undefined ? {} : { breaker }),
  };
}
