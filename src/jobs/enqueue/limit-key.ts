import { OptionError } from '../../core/errors.js';
import { HALF_PAIR, show } from '../../core/options.js';
import { valueAt } from '../../core/text/paths.js';

/** How the key of a job is found: a dot path into its payload, or a function of it. */
export type KeyPath = string | ((data: never) => unknown);

const LONGEST = 1_024;

/** A key as it is stored: numbers become text, missing or null becomes ''. */
export function keyText(where: string, value: unknown): string {
  if (value === undefined || value === null) return '';
  if (typeof value === 'number' && Number.isFinite(value)) return String(value);
  if (typeof value !== 'string')
    throw new OptionError(`${where} must be a text or a number, got ${show(value)}.`);
  if (value.length > LONGEST)
    throw new OptionError(
      `${where} must have at most ${String(LONGEST)} characters, got ${String(value.length)}.`,
    );
  if (!value.isWellFormed() || value.includes('\0'))
    throw new OptionError(
      `${where} ${value.isWellFormed() ? 'must not contain U+0000' : HALF_PAIR}, got ${show(value)}.`,
    );
  return value;
}

/** The key of a payload by its definition. */
export function keyOf(where: string, path: KeyPath, data: unknown): string {
  if (typeof path === 'function')
    return keyText(`${where}: the key that perKey.key returned`, path(data as never));
  return keyText(`${where}: the key at ${show(path)} of the payload`, valueAt(data, path));
}
