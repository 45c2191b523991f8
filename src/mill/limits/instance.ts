import { Backoff } from '../../core/backoff.js';
import { pause } from '../../core/clock.js';
import { OptionError, StoreError } from '../../core/errors.js';
import type { Meter } from '../../core/meter.js';
import { show } from '../../core/options.js';
import { publish } from '../../engine/limits/definitions.js';
import { Permits, type PermitsHost } from '../../engine/limits/permits.js';
import {
  isKeyedScope,
  readLeases,
  scopeText,
  type Instance,
  type LimitStore,
  type ScopeLimits,
  type ScopeRef,
  type Store,
} from '../../store/port.js';
import type { SharedLimits } from './shared.js';

/** What has a handler in this process, with the limits that the code gives it. */
export interface LimitedDefinition {
  readonly scope: ScopeRef;
  readonly limits: ScopeLimits | undefined;
}

export interface InstanceLimitsOptions {
  readonly store: Store;
  /** Asked anew with each use. */
  readonly work: () => Iterable<LimitedDefinition>;
  readonly shared: SharedLimits;
  readonly meter: Meter;
  readonly self: () => Instance;
  /** A breaker has turned, or has its trial here. */
  readonly turned: PermitsHost['turned'];
  /** What holds for a name has changed. */
  readonly changed: () => void;
  readonly error: (error: unknown, where: string) => void;
}

/** A start gives up after so many failures of the store in a row. */
const MOST_TRIES = 6;
const RETRY_MS = { min: 50, max: 1_000, jitter: true };

/** The limits of one instance: says what its code defines, and has its permits. */
export class InstanceLimits {
  readonly #options: InstanceLimitsOptions;
  readonly permits: Permits | undefined;
  #reading: Promise<void> | undefined;

  constructor(options: InstanceLimitsOptions) {
    this.#options = options;
    const { store, meter, self, changed, turned, error } = options;
    this.permits =
      store.limits &&
      new Permits({
        store: store.limits,
        clock: store.clock,
        meter,
        host: {
          self,
          changed,
          turned,
          missing: () => this.announce(),
          failed: (problem) => error(problem, 'limits'),
        },
      });
  }

  /** Throws if a definition cannot be kept: nothing must run without the limits that it names. */
  check(): void {
    const { store, work, shared } = this.#options;
    for (const { scope, limits } of work()) {
      const where = wordsOf(scope);
      if (scope.kind !== 'documents' && shared.all.has(scope.name))
        throw new OptionError(
          `limit(${show(scope.name)}): a ${scope.kind} has this name; call the shared limit differently.`,
        );
      if (limits === undefined) continue;
      if (store.limits === undefined)
        throw new OptionError(
          `${where}: the ${store.kind} store has no limits; leave limits, breaker and byKey out.`,
        );
      for (const one of limits.shared ?? []) shared.checkDefined(where, one);
    }
  }

  /** Holds back the names that the code limits, until their limits are known. */
  declare(): void {
    const { work, shared } = this.#options;
    for (const [name, limits] of shared.all) this.permits?.declare({ kind: 'shared', name }, limits);
    for (const { scope, limits } of work()) if (limits !== undefined) this.permits?.declare(scope, limits);
  }

  /** As `begin`, for definitions that came later or are missing in the store. */
  announce(): void {
    this.declare();
    const begun = this.begin().catch((error: unknown) => this.#options.error(error, 'limits'));
    this.#options.store.clock.track?.(begun);
  }

  /** Says in the cluster what the code defines, then reads what holds. Both may be repeated after a lost answer. */
  async begin(): Promise<void> {
    this.check();
    this.declare();
    const { clock } = this.#options.store;
    const retry = new Backoff(RETRY_MS);
    for (let tries = 1; ; tries += 1)
      try {
        await this.#publish();
        return;
      } catch (error) {
        const mayPass = error instanceof StoreError && error.transient;
        if (!mayPass || tries === MOST_TRIES) throw error;
        await pause(clock, retry.next());
      }
  }

  async #publish(): Promise<void> {
    const { store, work, shared, self } = this.#options;
    const { limits } = store;
    if (limits === undefined || this.permits === undefined) return;
    const { scopes } = await limits.read();
    const defined = new Set(scopes.map(({ scope }) => scopeText(scope)));
    const by = self().instanceId;
    const say = async (scope: ScopeRef, said: ScopeLimits | undefined): Promise<void> => {
      if (said !== undefined || defined.has(scopeText(scope))) await publish(limits, scope, said, by);
    };
    const all = [...work()];
    for (const [name, said] of shared.all) await say({ kind: 'shared', name }, said);
    for (const { scope, limits: said } of all) await say(scope, said);
    for (const { scope, limits: said } of all)
      if (said?.perKey !== undefined && isKeyedScope(scope)) await limits.repairKeys?.(scope, said.perKey);
    await this.permits.refresh();
  }

  /** Definitions may have changed in the cluster: reads what holds now. */
  look(): void {
    const { permits } = this;
    if (permits === undefined || this.#reading !== undefined) return;
    const reading = permits
      .refresh()
      .catch((error: unknown) => this.#options.error(error, 'limits'))
      .finally(() => (this.#reading = undefined));
    this.#reading = reading;
    this.#options.store.clock.track?.(reading);
  }

  /** Gives back what no work needs. */
  async end(): Promise<void> {
    await this.permits?.stop();
  }

  /** True while work that has no recorded outcome needs permits. */
  get isInUse(): boolean {
    return this.permits?.isInUse === true;
  }
}

/** How messages name a definition. */
function wordsOf({ kind, name }: ScopeRef): string {
  if (kind === 'task') return `reactiveTask(${show(name)})`;
  return kind === 'documents' ? `documents(${show(name)})` : `${kind} ${show(name)}`;
}

/** Frees what lives hold that are not registered any more: a late ask of a life that was buried. */
export async function dropUnregistered(limits: LimitStore, instances: Store['instances']): Promise<void> {
  const { scopes } = await limits.read();
  const held = new Set(
    scopes.flatMap(({ holders }) => holders.filter(({ gone }) => !gone).map(({ life }) => life)),
  );
  if (held.size === 0) return;
  // Read afterwards: a life registers before it asks, and one that is gone never comes back.
  const registered = new Set((await readLeases(instances)).instances.map(({ life }) => life));
  for (const life of held) if (!registered.has(life)) await limits.drop(life);
}

/** Offers work with a key that the store has lost sight of, for all names that have limits per key. */
export async function repairKeys(limits: LimitStore): Promise<void> {
  if (limits.repairKeys === undefined) return;
  const { scopes } = await limits.read();
  for (const { scope, limits: rules } of scopes)
    if (isKeyedScope(scope) && rules.perKey !== undefined) await limits.repairKeys(scope, rules.perKey);
}
