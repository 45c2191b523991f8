/**
 * Helpers for stores of document schedules: where a document keeps its schedule, and how to read it. Begin with
 * `checkFields`, which completes `DocumentPlace.fields`, and `jobOf`, which turns a document into a `DocumentJob`.
 */
import { OptionError } from '../../core/errors.js';
import { checkKeys, show } from '../../core/options.js';
import { valueAt, withValueAt } from '../../core/text/paths.js';
import type { DocumentFailure, DocumentFields, DocumentJob } from '../documents.js';

/** The names that a schedule has in a document, unless `DocumentPlace.fields` says otherwise. */
export const DEFAULT_FIELDS: Readonly<Record<keyof DocumentFields, string>> = {
  sleepUntil: 'sleepUntil',
  interval: 'interval',
  repeatUntil: 'repeatUntil',
  autoRemove: 'autoRemove',
  timezone: 'timezone',
  failure: 'scheduleFailure',
};

const OPTIONAL: ReadonlySet<string> = new Set(['timezone', 'failure']);

const isPath = (path: unknown): path is string =>
  typeof path === 'string' &&
  path.split('.').every((key) => key !== '' && !key.startsWith('$') && key !== '__proto__');

/**
 * Returns the paths of all parts. Throws an `OptionError` for a value that is no path, and for two parts at one place.
 */
export function checkFields(where: string, given: unknown): DocumentFields {
  const at = `${where}: fields`;
  checkKeys(at, given, Object.keys(DEFAULT_FIELDS));
  const fields = { ...DEFAULT_FIELDS, ...(given as Partial<DocumentFields> | undefined) };
  for (const [name, path] of Object.entries(fields) as [string, unknown][]) {
    if (isPath(path) || (path === null && OPTIONAL.has(name))) continue;
    const off = OPTIONAL.has(name) ? ', or null' : '';
    throw new OptionError(`${at}.${name} must be a path such as 'cron.${name}'${off}, got ${show(path)}.`);
  }
  const paths = Object.values(fields).filter((path) => path !== null);
  const twice = paths.find((path, index) =>
    paths.some((other, place) => place !== index && `${other}.`.startsWith(`${path}.`)),
  );
  if (twice !== undefined)
    throw new OptionError(
      `${at}: two fields use the path ${show(twice)}, or one inside it; give each its own path.`,
    );
  return fields;
}

/**
 * Throws an `OptionError` if failures have to be counted, and `fields.failure` is null. For `DocumentJobStore.open`.
 */
export function checkCounts(where: string, fields: DocumentFields, counts: boolean): void {
  if (!counts || fields.failure !== null) return;
  throw new OptionError(
    `${where}: retryPolicy needs a field in which to count failures; set fields.failure to a path, not null.`,
  );
}

const dateOf = (value: unknown): Date | undefined => {
  const at = typeof value === 'string' ? new Date(value) : value;
  return at instanceof Date && !Number.isNaN(at.getTime()) ? at : undefined;
};

/** Returns the failures that a document keeps; null for anything that this library did not write. */
export function failureOf(value: unknown): DocumentFailure | null {
  if (typeof value !== 'object' || value === null) return null;
  const { count, reason, firstAt, at, scheduledFor, ended } = value as Record<string, unknown>;
  const [first, last, slot] = [dateOf(firstAt), dateOf(at), dateOf(scheduledFor)];
  if (typeof count !== 'number' || typeof reason !== 'string' || first === undefined || last === undefined)
    return null;
  const known = { count, reason, firstAt: first, at: last, ended: ended === true };
  return slot === undefined ? known : { ...known, scheduledFor: slot };
}

/** Returns the mark of a lock that is kept beside failures, or null. */
export const lockMarkOf = (value: unknown): Date | null =>
  typeof value === 'object' && value !== null ? (dateOf(Reflect.get(value, 'lockedUntil')) ?? null) : null;

/** Returns the parts of a schedule other than the due time, with their paths: what a `revision` is made of. */
export const scheduleOf = (
  document: unknown,
  { interval, repeatUntil, autoRemove, timezone }: DocumentFields,
): readonly (readonly [path: string, value: unknown])[] =>
  [interval, repeatUntil, autoRemove, timezone].flatMap((path) =>
    path === null ? [] : [[path, valueAt(document, path)] as const],
  );

/**
 * Returns the schedule of a document. Values are passed on as they are; the scheduler reports what is wrong with them.
 */
export function jobOf<Doc extends Readonly<Record<string, unknown>>>(
  id: unknown,
  document: Doc,
  fields: DocumentFields,
  revision?: unknown,
): DocumentJob<Doc> {
  const value = (path: string | null): never =>
    (path === null ? undefined : valueAt(document, path)) as never;
  return {
    id,
    sleepUntil: value(fields.sleepUntil),
    interval: value(fields.interval),
    repeatUntil: value(fields.repeatUntil),
    autoRemove: value(fields.autoRemove),
    timezone: value(fields.timezone),
    failure: failureOf(value(fields.failure)),
    lockedUntil: lockMarkOf(value(fields.failure)),
    ...(revision === undefined ? {} : { revision }),
    get data() {
      return dataOf(document, fields);
    },
    document,
  };
}

/** Returns the other fields. Few handlers ask for them, so `jobOf` gathers them on demand. */
function dataOf(
  document: Readonly<Record<string, unknown>>,
  fields: DocumentFields,
): Record<string, unknown> {
  let rest = { ...document };
  for (const path of Object.values(fields) as (string | null)[])
    if (path !== null) rest = withValueAt(rest, path, undefined);
  return rest;
}
