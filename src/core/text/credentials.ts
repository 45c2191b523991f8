/**
 * Credentials in free text: what stands before the `@` of a URL, and values of parameters that are named like a secret, in URLs
 * and in connection strings of keywords and values. Messages of drivers quote what they were given, and so do ours. One pass
 * over the text, however long it is.
 */

/** Parameters of connection strings whose values are nobody's business. */
export const SECRET_PARAMETER: RegExp = /pass|pwd|secret|token|key|cred|auth/iu;
/** Only before the path of these can an `@` end credentials; in others it may belong to the path. */
const WEB = new Set(['http', 'https', 'ws', 'wss', 'ftp', 'file']);
const LONGEST_NAME = 60;

const isSpace = (char: string): boolean => char.trim() === '';
const QUOTES = new Set(['"', "'", '`', '<', '>']);
/** What a value may stand in. */
const AROUND_VALUES = '\'"`';
const endsUrl = (char: string): boolean => isSpace(char) || QUOTES.has(char);
const isWord = (char: string): boolean => /[\w.+-]/u.test(char);

/** The first place from `at` on at which `ends` holds, up to `limit`. */
function endOf(text: string, at: number, ends: (char: string) => boolean, limit = text.length): number {
  let end = at;
  while (end < limit && !ends(text.charAt(end))) end += 1;
  return end;
}

/** The word that ends at a place. */
function wordBefore(text: string, end: number): string {
  let start = end;
  while (start > 0 && end - start < LONGEST_NAME && isWord(text.charAt(start - 1))) start -= 1;
  return text.slice(start, end);
}

function lastAt(text: string, start: number, end: number): number {
  let at = end - 1;
  while (at >= start && text.charAt(at) !== '@') at -= 1;
  return at >= start ? at : -1;
}

const isLineEnd = (char: string): boolean => char === '\n' || char === '\r';

/** A host with its port, or several, which a path follows: nothing before it can be a password. */
const HOSTS = /^(?:[\w.%-]*|\[[\da-f:.]*\])(?::\d*)?(?:,(?:[\w.%-]+|\[[\da-f:.]+\])(?::\d*)?)*$/iu;
const LONGEST_AUTHORITY = 300;

/** A stretch of text without a gap, in which one URL or several stand. What was found in it is kept for the next one. */
class Stretch {
  readonly #text: string;
  readonly #isWhole: boolean;
  #end = 0;
  #query = -1;
  #atBeforeQuery = -1;
  #at = -1;
  /** The next `@`, or the end of the line if that comes first. */
  #ahead = -1;

  /** `isWhole`: the text is one URL, whatever is in it. */
  constructor(text: string, isWhole: boolean) {
    this.#text = text;
    this.#isWhole = isWhole;
  }

  /** Looks at what follows `start`: nothing of it twice, however many URLs are asked about. */
  move(scheme: string, start: number): void {
    if (start > this.#end || this.#query < 0) {
      this.#end = this.#isWhole ? this.#text.length : this.#gapAfter(scheme, start);
      this.#at = lastAt(this.#text, start, this.#end);
      this.#query = -1;
    }
    if (start > this.#query) {
      this.#query = endOf(this.#text, start, (char) => char === '?', this.#end);
      this.#atBeforeQuery = lastAt(this.#text, start, this.#query);
    }
  }

  /** Where the URL ends. A quote or a space before any `@` may be part of a password: then what follows the `@` tells. */
  #gapAfter(scheme: string, start: number): number {
    const gap = endOf(this.#text, start, endsUrl);
    if (lastAt(this.#text, start, gap) >= 0 || !this.#mayGoOn(scheme, start, gap)) return gap;
    if (this.#ahead < gap) this.#ahead = endOf(this.#text, gap, (char) => char === '@' || isLineEnd(char));
    return this.#text.charAt(this.#ahead) === '@' ? endOf(this.#text, this.#ahead, endsUrl) : gap;
  }

  #mayGoOn(scheme: string, start: number, gap: number): boolean {
    const authority = endOf(this.#text, start, (char) => '/?#'.includes(char), gap);
    if (authority - start > LONGEST_AUTHORITY) return true;
    const isHosts = HOSTS.test(this.#text.slice(start, authority));
    return !isHosts || (authority === gap && !WEB.has(scheme.toLowerCase()));
  }

  /** Where the credentials of a URL end, whose authority begins at `start`; -1: it has none. */
  credentialsEnd(scheme: string, start: number): number {
    const text = this.#text;
    const authority = endOf(text, start, (char) => '/?#'.includes(char), this.#end);
    if (WEB.has(scheme.toLowerCase())) return lastAt(text, start, authority);
    if (this.#atBeforeQuery >= start) return this.#atBeforeQuery;
    // A password with a question mark in it: what follows the colon is no port.
    const isPort = /^[^:]*(?::\d*)?$/u.test(
      text.slice(start, Math.min(authority, start + LONGEST_AUTHORITY)),
    );
    return isPort || authority !== this.#query ? -1 : this.#at;
  }
}

/** The text without users and passwords of URLs. */
export function hideUserinfo(text: string, mark: string): string {
  const stretch = new Stretch(text, false);
  let safe = '';
  let done = 0;
  for (let colon = text.indexOf(':/'); colon >= 0; colon = text.indexOf(':/', Math.max(done, colon + 1))) {
    const scheme = wordBefore(text, colon);
    const slashes = text.charAt(colon + 2) === '/' ? 2 : 1;
    // One letter is a drive.
    if (scheme.length < 2 || (slashes === 1 && WEB.has(scheme.toLowerCase()))) continue;
    const start = colon + 1 + slashes;
    stretch.move(scheme, start);
    const end = stretch.credentialsEnd(scheme, start);
    if (end < start) continue;
    safe += `${text.slice(done, start)}${mark}${mark === '' ? '' : '@'}`;
    done = end + 1;
  }
  return safe + text.slice(done);
}

/** A URL apart: what is before its credentials, these, and what follows them. */
export function urlParts(url: string): {
  readonly head: string;
  readonly userinfo: string;
  readonly rest: string;
} {
  const colon = url.indexOf(':');
  const start = endOf(url, colon + 1, (char) => char !== '/', colon + 3);
  const scheme = url.slice(0, colon);
  const stretch = new Stretch(url, true);
  stretch.move(scheme, start);
  const end = url.charAt(colon + 1) === '/' ? stretch.credentialsEnd(scheme, start) : -1;
  return end < start
    ? { head: url.slice(0, start), userinfo: '', rest: url.slice(start) }
    : { head: url.slice(0, start), userinfo: url.slice(start, end), rest: url.slice(end + 1) };
}

/** Where a value that begins at `at` ends: in quotes of its own, or at the next parameter. */
function valueEnd(text: string, at: number): number {
  const quote = text.charAt(at);
  if (quote === '' || !AROUND_VALUES.includes(quote))
    return endOf(text, at, (char) => char === '&' || endsUrl(char));
  let end = at + 1;
  while (end < text.length && text.charAt(end) !== quote) end += text.charAt(end) === '\\' ? 2 : 1;
  return Math.min(text.length, end + 1);
}

/** The text without values of parameters that are named like secrets. */
export function hideParameters(text: string, mark: string): string {
  let safe = '';
  let done = 0;
  for (let sign = text.indexOf('='); sign >= 0; sign = text.indexOf('=', Math.max(done, sign + 1))) {
    if (!SECRET_PARAMETER.test(wordBefore(text, sign))) continue;
    const end = valueEnd(text, sign + 1);
    if (end === sign + 1) continue;
    safe += `${text.slice(done, sign + 1)}${mark}`;
    done = end;
  }
  return safe + text.slice(done);
}

/** What an error message may show of a text that may be, or hold, a URL of a database. */
export const hideCredentials = (text: string, mark = '***'): string =>
  hideParameters(hideUserinfo(text, mark), mark);
