import { OptionError } from './errors.js';
import { show } from './options.js';

/**
 * Throws if a call was given more arguments than it takes: JavaScript drops them, and with them options of the caller.
 * `form` is the call as it is written, and `hint` says where such an argument belongs.
 */
export function checkSurplus(form: string, hint: string, surplus: readonly unknown[]): void {
  const given = surplus.filter((value) => value !== undefined);
  if (given.length === 0) return;
  throw new OptionError(`${form}: got ${given.map(show).join(', ')} as a further argument. ${hint}`);
}
