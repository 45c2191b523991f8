import type { Logger } from '../../core/logger.js';
import { show } from '../../core/options.js';

/** Names beyond this many are not looked at: they are made from data. */
const MOST_NAMES = 1_000;
/** Of all options, this is the one that payloads often consist of. */
const COMMON = 'id';

/**
 * Warns of payloads that have only names of options, if the call had no options: they were probably meant as such, one
 * argument later. Warns once for each name and call, and refuses nothing, since it may be data.
 */
export class LikelyOptions {
  readonly #log: Logger;
  readonly #warned = new Set<string>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** `call` is the call up to the name of the job; `known` are the options that it takes. */
  note(call: string, name: string, data: unknown, known: readonly string[]): void {
    if (typeof data !== 'object' || data === null || Array.isArray(data)) return;
    const keys = Object.keys(data);
    if (keys.length === 0 || !keys.every((key) => known.includes(key))) return;
    if (keys.length === 1 && keys[0] === COMMON) return;
    const place = call + name;
    if (this.#warned.has(place) || this.#warned.size >= MOST_NAMES) return;
    this.#warned.add(place);
    const given = `{ ${keys.join(', ')} }`;
    this.#log.warn(
      { name },
      `the payload ${given} of ${show(name)} has only names of options, and the call had no options. If they are ` +
        `options, they come after the payload: ${call}${show(name)}, {}, ${given}).`,
    );
  }
}
