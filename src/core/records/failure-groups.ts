/** Groups failures whose messages differ only in ids and numbers; status codes and exit codes keep them apart. */
import { checkInteger, checkKeys, checkText } from '../options.js';

/** One failed job or task, reduced to what grouping needs. */
export interface FailureLine {
  readonly name: string;
  readonly message: string;
  readonly at: Date;
}

export interface FailureGroup {
  readonly name: string;
  /** The message, with `…` in place of ids, times and numbers; a status code such as 404 stays. */
  readonly pattern: string;
  /** The newest message, in full. */
  readonly example: string;
  /** The longest text that all messages of the group contain, or `''`. As an error filter it finds the whole group. */
  readonly search: string;
  readonly count: number;
  readonly firstAt: Date;
  readonly lastAt: Date;
}

/** Replaces the parts that vary between messages. */
const GAP = '…';
const LONGEST = 500;

/** Most specific first: UUIDs, times, hexadecimal numbers and ids must match before the plain digits inside them. */
const VARIABLE: readonly RegExp[] = [
  /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/giu,
  /\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?/gu,
  /\b0x[0-9a-f]+\b/giu,
  // Ids of jobs on the SQL stores.
  /\b1[g-v][0-9a-v]{20}\b/gu,
  /\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b/giu,
];
const NUMBER = /\d+(?:\.\d+)*/gu;

/** How much text before and after a number decides what it is. Bounded, since messages are untrusted. */
const CONTEXT = 40;
/** `500 ms`, `404 bytes`, `80 %`: an amount. */
const UNIT_AFTER = /^\s*(?:%|(?:ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?|bytes?|[kmg]i?b)\b)/iu;
/** `status 404`, `statusCode: 404`, `HTTP/1.1 404`, `exit code 137`, `"errno":-110`, `signal 9`. */
const CODE_BEFORE =
  /(?:^|[^a-z]|status|error|exit)(?:http(?:\/[\d.]+)?|status|code|errno|signal)["']?\s*[:=(]?\s*["'-]?$/iu;
/** `returned 503`, `error: 502`, `got a 429`, `Bad Gateway (502)`. */
const RESPONSE_BEFORE =
  /(?:\b(?:returned|responded|answered|received|got|response|[Ee]rror)(?: with)?:?\s+(?:an?\s+)?|[A-Z][a-z]+ \()$/u;
/** `404 Not Found`, `Not Found: 404 (Not Found)`. */
const REASON_AFTER = /^\s+\(?[A-Z][a-z]/u;

/** Whether a number names the kind of failure, as an exit code or an HTTP status does. */
function isCode(number: string, before: string, after: string): boolean {
  if (!/^\d{1,4}$/u.test(number) || /^[\w-]/u.test(after) || UNIT_AFTER.test(after)) return false;
  if (CODE_BEFORE.test(before)) return true;
  if (!/^[45]\d\d$/u.test(number)) return false;
  const begins = before === '' && /^(?:$|[:,])/u.test(after);
  return begins || RESPONSE_BEFORE.test(before) || (/(?:^|[\s(])$/u.test(before) && REASON_AFTER.test(after));
}

/** The message without its variable parts. */
export function patternOf(message: string): string {
  const line = message.slice(0, LONGEST).trim();
  const text = VARIABLE.reduce((rest, variable) => rest.replaceAll(variable, GAP), line);
  return text.replaceAll(NUMBER, (number, at: number) => {
    const before = text.slice(Math.max(0, at - CONTEXT), at);
    const after = text.slice(at + number.length, at + number.length + CONTEXT);
    return isCode(number, before, after) ? number : GAP;
  });
}

const searchOf = (pattern: string): string =>
  pattern
    .split(GAP)
    .reduce((longest, part) => (part.length > longest.length ? part : longest), '')
    .trim();

interface Gathered {
  readonly name: string;
  readonly pattern: string;
  count: number;
  newest: FailureLine;
  oldest: FailureLine;
}

/** Returns the groups, most recent first. */
export function groupFailures(lines: readonly FailureLine[]): readonly FailureGroup[] {
  const groups = new Map<string, Gathered>();
  for (const line of lines) {
    const pattern = patternOf(line.message);
    const key = JSON.stringify([line.name, pattern]);
    const group = groups.get(key) ?? { name: line.name, pattern, count: 0, newest: line, oldest: line };
    group.count += 1;
    if (line.at > group.newest.at) group.newest = line;
    if (line.at < group.oldest.at) group.oldest = line;
    groups.set(key, group);
  }
  return [...groups.values()]
    .map(({ name, pattern, count, newest, oldest }) => ({
      name,
      pattern,
      example: newest.message,
      search: searchOf(pattern),
      count,
      firstAt: oldest.at,
      lastAt: newest.at,
    }))
    .sort((a, b) => b.lastAt.getTime() - a.lastAt.getTime() || b.count - a.count);
}

export interface ErrorsOptions {
  /** Only failures of this name. Default: all names. */
  readonly name?: string;
  /** How many of the newest failures to read, from 1 to 20,000. Default: 5,000. */
  readonly limit?: number;
}

export interface ErrorGroups {
  readonly groups: readonly FailureGroup[];
  /** There are more failures than were read. */
  readonly partial: boolean;
}

export function checkErrorsOptions(
  where: string,
  options: ErrorsOptions,
): { readonly limit: number; readonly name: string | undefined } {
  checkKeys(where, options, ['name', 'limit']);
  const { name, limit = 5_000 } = options;
  return {
    name: name === undefined ? undefined : checkText(where, 'name', name),
    limit: checkInteger(where, 'limit', limit, 1, 20_000),
  };
}

/** Pass `limit` + 1 lines: the extra one shows that there are more. */
export const groupsOf = (lines: readonly FailureLine[], limit: number): ErrorGroups => ({
  groups: groupFailures(lines.slice(0, limit)),
  partial: lines.length > limit,
});
