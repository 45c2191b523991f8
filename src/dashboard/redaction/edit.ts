/** Applies an edit of what was shown to the value that is stored, of which some parts were hidden or described. */
import { OptionError } from '../../index.js';
import { REDACTED } from './redact-text.js';

const textOf = (value: unknown): string => (value === undefined ? 'undefined' : JSON.stringify(value));

const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' &&
  value !== null &&
  [Object.prototype, null].includes(Object.getPrototypeOf(value) as object | null);

/** The placeholder stands for one value at one place; anywhere else it would be stored as a text. */
function fresh(value: unknown): unknown {
  if (!textOf(value).includes(REDACTED)) return value;
  throw new OptionError(
    `data: "${REDACTED}" stands for a hidden value of the stored payload. Leave it where it was, or write the new value in its place.`,
  );
}

/**
 * Returns the edited value with everything that was not changed as it is stored: hidden values, and values whose type
 * JSON does not have, such as dates.
 */
export function applyEdit(original: unknown, shown: unknown, edited: unknown): unknown {
  if (textOf(edited) === textOf(shown)) return original;
  if (isPlain(original) && isPlain(shown) && isPlain(edited))
    return Object.fromEntries(
      Object.entries(edited).map(([key, value]) => [
        key,
        Object.hasOwn(shown, key) ? applyEdit(original[key], shown[key], value) : fresh(value),
      ]),
    );
  if (Array.isArray(original) && Array.isArray(shown) && Array.isArray(edited))
    return editedList(original, shown, edited);
  return fresh(edited);
}

/**
 * Items may have been moved. One that reads like exactly one item of the stored list is that item; only in a list of the
 * same length is an item that reads like none a changed one.
 */
function editedList(
  original: readonly unknown[],
  shown: readonly unknown[],
  edited: readonly unknown[],
): unknown[] {
  const texts = shown.map(textOf);
  return edited.map((item, at) => {
    const text = textOf(item);
    if (edited.length === shown.length && text === texts[at]) return original[at];
    const [place, ...others] = texts.flatMap((one, index) => (one === text ? [index] : []));
    if (place !== undefined) return others.length === 0 ? original[place] : fresh(item);
    return edited.length === shown.length ? applyEdit(original[at], shown[at], item) : fresh(item);
  });
}

/** Larger versions are cut in the audit log. */
const LONGEST_VERSION = 20_000;

/** Both versions of a payload, for the audit log. `hide` redacts. */
export function versionsOf(
  before: unknown,
  after: unknown,
  hide: (value: unknown) => unknown,
): { readonly before: unknown; readonly after: unknown } {
  const kept = (value: unknown): unknown => {
    const hidden = hide(value);
    const text = textOf(hidden);
    return text.length <= LONGEST_VERSION ? hidden : `${text.slice(0, LONGEST_VERSION)}…`;
  };
  return { before: kept(before), after: kept(after) };
}
