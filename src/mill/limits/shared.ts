import { OptionError } from '../../core/errors.js';
import { checkKeys, checkName, show, suggestion } from '../../core/options.js';
import { compileLimits, type SharedLimitOptions } from '../../engine/limits/options.js';
import type { ScopeLimits } from '../../store/port.js';

/** The shared limits that `mill.limit` defined on one mill. */
export class SharedLimits {
  readonly #limits = new Map<string, ScopeLimits>();

  get all(): ReadonlyMap<string, ScopeLimits> {
    return this.#limits;
  }

  add(name: unknown, options: SharedLimitOptions): void {
    const where = `limit(${show(name)})`;
    const checked = checkName(where, 'name', name);
    if (this.#limits.has(checked))
      throw new OptionError(`${where}: this mill has a limit of that name already; define it once.`);
    checkKeys(where, options, ['concurrency', 'rate', 'breaker']);
    const compiled = compileLimits(where, options);
    if (Object.keys(compiled).length === 0)
      throw new OptionError(`${where}: give it concurrency, rate or breaker; it would limit nothing.`);
    this.#limits.set(checked, compiled);
  }

  checkDefined(where: string, name: string): void {
    if (this.#limits.has(name)) return;
    const hint = suggestion(name, [...this.#limits.keys()]);
    throw new OptionError(
      `${where}: the shared limit ${show(name)} is not defined on this mill.${hint} Define it with mill.limit(${show(name)}, …).`,
    );
  }
}
