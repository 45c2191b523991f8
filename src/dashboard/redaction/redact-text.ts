/**
 * Finds secrets in free text: `password=…`, `"password": "…"`, the same in JSON nested in a JSON string, headers, URL
 * parameters, and the part before the `@` of a URL. Only values with such a name are found. It makes one pass,
 * whatever the length of the text.
 */
import { hideUserinfo } from '../../mill/tools.js';

/** Whether a name is that of a secret. */
export type IsSecret = (name: string) => boolean;

export const REDACTED = '[redacted]';

const LONGEST_NAME = 100;
/** Names whose value extends to the end of its line, as in headers. */
const TO_THE_END = /(?:authorization|cookies?)$/iu;
/** Surrogates are included, because a letter may take two code units. */
const NAME_CHARACTER = /[\p{L}\p{M}\p{N}\p{Cs}_$.[\]%-]/u;
const QUOTE = /["'`]/u;
/** Characters that end an unquoted value if another part follows. */
const SOFT_END = /[,;&)\]}]/u;

class Scanner {
  readonly #text: string;
  readonly #isSecret: IsSecret;
  #at = 0;

  constructor(text: string, isSecret: IsSecret) {
    this.#text = text;
    this.#isSecret = isSecret;
  }

  run(): string {
    const { length } = this.#text;
    let safe = '';
    let done = 0;
    while (this.#at < length) {
      const value = this.#next();
      if (value === undefined) continue;
      safe += this.#text.slice(done, value.start) + REDACTED;
      done = value.end;
      this.#at = Math.max(value.end, this.#at);
    }
    return safe + this.#text.slice(done);
  }

  #char(at: number): string {
    return this.#text.charAt(at);
  }

  #skip(at: number, test: (char: string) => boolean): number {
    let end = at;
    while (end < this.#text.length && test(this.#char(end))) end += 1;
    return end;
  }

  /** Returns the value after the next name if the name is that of a secret. Moves on in any case. */
  #next(): { readonly start: number; readonly end: number } | undefined {
    const start = this.#skip(this.#at, (char) => !NAME_CHARACTER.test(char));
    const end = this.#skip(start, (char) => NAME_CHARACTER.test(char));
    this.#at = end;
    if (end === start) return undefined;
    const { name, nameEnd } = this.#name(start, end);
    const sign = this.#sign(name, nameEnd);
    if (sign === undefined || !this.#isSecret(name)) return undefined;
    const value = this.#quoted(sign.end) ?? this.#nested(sign.end) ?? this.#bare(sign.end, name, sign.text);
    return value.end > value.start ? value : undefined;
  }

  /** `password%3Dx` is a name, a sign and a value: the encoded sign ends the name. */
  #name(start: number, end: number): { readonly name: string; readonly nameEnd: number } {
    const whole = this.#text.slice(start, Math.min(end, start + 2 * LONGEST_NAME));
    const sign = whole.search(/%3d|%3a/iu);
    const nameEnd = sign < 0 ? end : start + sign;
    return { name: this.#text.slice(Math.max(start, nameEnd - LONGEST_NAME), nameEnd), nameEnd };
  }

  /** What separates a name from its value: `=`, `:`, `=>`, or a space after an option such as `--password`. */
  #sign(name: string, at: number): { readonly text: string; readonly end: number } | undefined {
    const encoded = this.#text.slice(at, at + 3).toLowerCase();
    if (encoded === '%3d' || encoded === '%3a') return { text: '=', end: at + 3 };
    // The name may be quoted, and the quotes escaped.
    const closed = this.#skip(at, (char) => char === '\\' || QUOTE.test(char));
    const gap = this.#spaces(closed);
    const char = this.#char(gap);
    if (char === '=' || char === ':') {
      const arrow = this.#char(gap + 1) === '>' ? 2 : 1;
      return { text: char, end: this.#spaces(gap + arrow) };
    }
    return name.startsWith('--') && gap > at ? { text: ' ', end: gap } : undefined;
  }

  #spaces(at: number): number {
    return this.#skip(at, (char) => char.trim() === '');
  }

  /**
   * Returns a quoted value. Quotes may be escaped several times, as in JSON inside JSON, or doubled as in SQL.
   * Without a closing quote the value is all of the rest. `last` is the position of the closing quote.
   */
  #quoted(at: number): { start: number; end: number; last: number } | undefined {
    const open = this.#skip(at, (char) => char === '\\');
    const quote = this.#char(open);
    if (!QUOTE.test(quote)) return undefined;
    const depth = open - at;
    let end = open + 1;
    for (let run = 0; end < this.#text.length; end += 1) {
      const char = this.#char(end);
      const closes = char === quote && (depth === 0 ? run % 2 === 0 : run === depth);
      if (closes && (depth > 0 || this.#char(end + 1) !== quote)) break;
      if (closes) end += 1;
      run = char === '\\' ? run + 1 : 0;
    }
    end = Math.min(end, this.#text.length);
    return { start: open + 1, end: Math.max(open + 1, end - depth), last: end };
  }

  /** Returns a list or an object, up to its closing bracket; brackets in quotes do not count. */
  #nested(at: number): { start: number; end: number } | undefined {
    if (!'[{'.includes(this.#char(at)) || this.#char(at) === '') return undefined;
    let depth = 0;
    let end = at;
    for (; end < this.#text.length; end += 1) {
      // Skips a whole run of backslashes, so that none is read twice.
      const open = this.#skip(end, (char) => char === '\\');
      end = this.#quoted(end)?.last ?? Math.max(end, open - 1);
      const char = this.#char(end);
      if (char === '[' || char === '{') depth += 1;
      if (char === ']' || char === '}') depth -= 1;
      if (depth === 0) return { start: at, end: end + 1 };
    }
    return { start: at, end: this.#text.length };
  }

  #bare(at: number, name: string, sign: string): { start: number; end: number } {
    const isLine = sign === ':' && TO_THE_END.test(name);
    let end = at;
    while (end < this.#text.length && !(isLine ? this.#char(end) === '\n' : this.#ends(end))) end += 1;
    // In `Bearer x` the scheme is not the secret: the value continues with what follows.
    const scheme = /^(?:bearer|basic|digest|token)$/iu.test(this.#text.slice(at, end));
    if (!scheme || isLine) return { start: at, end };
    const next = this.#spaces(end);
    const rest = this.#bare(next, '', sign);
    return { start: at, end: rest.end > next ? rest.end : end };
  }

  #ends(at: number): boolean {
    const char = this.#char(at);
    if (char.trim() === '' || QUOTE.test(char)) return true;
    if (char === '\\') return QUOTE.test(this.#char(at + 1)) || this.#char(at + 1) === 'n';
    if (!SOFT_END.test(char)) return false;
    // A password may contain such a character: it ends the value only if another part, or nothing, follows.
    const rest = this.#text.slice(at + 1, at + 41);
    return rest === '' || /^(?:[\s,;)\]}"'\\]|[\p{L}\p{M}\p{N}\p{Cs}_.%[\]-]{1,39}[=:])/u.test(rest);
  }
}

export function redactText(text: string, isSecret: IsSecret): string {
  return new Scanner(hideUserinfo(text, REDACTED), isSecret).run();
}
