/**
 * Finds credentials in free text: the user info before the `@` of a URL, and the values of parameters with a secret's
 * name, in URLs and in keyword/value connection strings. Error messages, the drivers' and ours, quote such input. Takes
 * one pass over the text, however long it is.
 */

/** Names of connection parameters whose values must not be shown. */
export const SECRET_PARAMETER: RegExp = /pass|pwd|secret|token|key|cred|auth/iu;
/** For these schemes, credentials end before the path: a later `@` belongs to the path. */
const WEB = new Set(['http', 'https', 'ws', 'wss', 'ftp', 'file']);
const LONGEST_NAME = 60;

const isSpace = (char: string): boolean => char.trim() === '';
const QUOTES = new Set(['"', "'", '`', '<', '>']);
/** Quotes that may surround a parameter's value. */
const AROUND_VALUES = '\'"`';
const endsUrl = (char: string): boolean => isSpace(char) || QUOTES.has(char);
const isWord = (char: string): boolean => /[\w.+-]/u.test(char);

/** The first index from `at` on whose character satisfies `ends`, or `limit`. */
function endOf(text: string, at: number, ends: (char: string) => boolean, limit = text.length): number {
  let end = at;
  while (end < limit && !ends(text.charAt(end))) end += 1;
  return end;
}

/** The word that ends at `end`, at most `LONGEST_NAME` characters. */
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

/** One or several hosts with optional ports. Such an authority contains no password. */
const HOSTS = /^(?:[\w.%-]*|\[[\da-f:.]*\])(?::\d*)?(?:,(?:[\w.%-]+|\[[\da-f:.]+\])(?::\d*)?)*$/iu;
const LONGEST_AUTHORITY = 300;

/** A stretch of text without a gap, with one URL or several. Keeps what it found for the next URL in the stretch. */
class UrlText {
  readonly #text: string;
  readonly #isWhole: boolean;
  #end = 0;
  #query = -1;
  #atBeforeQuery = -1;
  #at = -1;
  /** The next `@`, or the end of the line if that comes first. */
  #ahead = -1;

  /** `isWhole`: the text is a single URL, even if it contains spaces or quotes. */
  constructor(text: string, isWhole: boolean) {
    this.#text = text;
    this.#isWhole = isWhole;
  }

  /** Moves to the URL whose authority begins at `start`. Scans no character twice within a stretch. */
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

  /** Where the URL ends. A space or quote before any `@` may be part of a password; the URL then ends after the `@`. */
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

  /** The index of the `@` that ends the credentials of the URL whose authority begins at `start`; -1 if it has none. */
  credentialsEnd(scheme: string, start: number): number {
    const text = this.#text;
    const authority = endOf(text, start, (char) => '/?#'.includes(char), this.#end);
    if (WEB.has(scheme.toLowerCase())) return lastAt(text, start, authority);
    if (this.#atBeforeQuery >= start) return this.#atBeforeQuery;
    // No port after the colon: it is a password that contains a question mark.
    const isPort = /^[^:]*(?::\d*)?$/u.test(
      text.slice(start, Math.min(authority, start + LONGEST_AUTHORITY)),
    );
    return isPort || authority !== this.#query ? -1 : this.#at;
  }
}

/** Replaces users and passwords in URLs by `mark`. */
export function hideUserinfo(text: string, mark: string): string {
  const urls = new UrlText(text, false);
  let safe = '';
  let done = 0;
  for (let colon = text.indexOf(':/'); colon >= 0; colon = text.indexOf(':/', Math.max(done, colon + 1))) {
    const scheme = wordBefore(text, colon);
    const slashes = text.charAt(colon + 2) === '/' ? 2 : 1;
    // A single letter is a Windows drive.
    if (scheme.length < 2 || (slashes === 1 && WEB.has(scheme.toLowerCase()))) continue;
    const start = colon + 1 + slashes;
    urls.move(scheme, start);
    const end = urls.credentialsEnd(scheme, start);
    if (end < start) continue;
    safe += `${text.slice(done, start)}${mark}${mark === '' ? '' : '@'}`;
    done = end + 1;
  }
  return safe + text.slice(done);
}

/** Splits a URL: what precedes its credentials, the credentials, and what follows their `@`. */
export function urlParts(url: string): {
  readonly head: string;
  readonly userinfo: string;
  readonly rest: string;
} {
  const colon = url.indexOf(':');
  const start = endOf(url, colon + 1, (char) => char !== '/', colon + 3);
  const scheme = url.slice(0, colon);
  const urls = new UrlText(url, true);
  urls.move(scheme, start);
  const end = url.charAt(colon + 1) === '/' ? urls.credentialsEnd(scheme, start) : -1;
  return end < start
    ? { head: url.slice(0, start), userinfo: '', rest: url.slice(start) }
    : { head: url.slice(0, start), userinfo: url.slice(start, end), rest: url.slice(end + 1) };
}

/** Where the value that begins at `at` ends: after its closing quote, or before the next parameter. */
function valueEnd(text: string, at: number): number {
  const quote = text.charAt(at);
  if (quote === '' || !AROUND_VALUES.includes(quote))
    return endOf(text, at, (char) => char === '&' || endsUrl(char));
  let end = at + 1;
  while (end < text.length && text.charAt(end) !== quote) end += text.charAt(end) === '\\' ? 2 : 1;
  return Math.min(text.length, end + 1);
}

/** Replaces the values of parameters with a secret's name by `mark`. */
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

/** Makes a text that may contain a database URL safe to show in an error message. */
export const hideCredentials = (text: string, mark = '***'): string =>
  hideParameters(hideUserinfo(text, mark), mark);
