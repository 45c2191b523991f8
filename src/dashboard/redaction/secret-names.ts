/**
 * Decides by its name whether a key holds a secret. `password` also matches `db_password`, `dbPassword`,
 * `x-password`, `user[password]`, `password[]` and `PASSWORD2`, because programs spell the same name in many ways.
 */

/** Names that hold secrets in many programs. A key that ends with one of them matches too. */
export const SECRETS: readonly string[] = [
  'password',
  'passwords',
  'passwordHash',
  'passwordConfirmation',
  'passwd',
  'pwd',
  'passphrase',
  'passcode',
  'pass',
  'secret',
  'secrets',
  'token',
  'apiKey',
  'accessKey',
  'secretKey',
  'privateKey',
  'signingKey',
  'encryptionKey',
  'credential',
  'credentials',
  'authorization',
  'auth',
  'cookie',
  'cookies',
  'jwt',
  'otp',
  'cvv',
  'cvc',
  'connectionString',
];

/** Shorter names match whole words only: `author` is not `auth`. */
const LONG_ENOUGH = 5;
const LONGEST_NAME = 100;

/** Splits a key into words in lower case, without list positions, brackets and numbers at their end. */
function wordsOf(key: string): readonly string[] {
  const spelled = decoded(key.slice(-LONGEST_NAME));
  const words = spelled
    .replaceAll(/(?<before>[\p{Ll}\p{N}])(?=\p{Lu})/gu, '$<before> ')
    .toLowerCase()
    .split(/[^\p{L}\p{M}\p{N}]+/u)
    .map((word) => word.replace(/\d{1,9}$/u, ''))
    .filter((word) => word !== '');
  // A name without any letter or digit is a name as well.
  return words.length > 0 ? words : [spelled.toLowerCase()];
}

/**
 * The last key of a path as it is written in texts (`card.number`, `card[number]`, `card[number][0]`), in lower case.
 */
export const lastKeyOf = (name: string): string =>
  decoded(name)
    .toLowerCase()
    .split(/[.[\]]|^-+/u)
    .filter((key) => !/^\d*$/u.test(key))
    .at(-1) ?? name.toLowerCase();

/** Names in URLs are percent-encoded, and Unicode can spell the same letter in several ways. */
const decoded = (key: string): string => key.replaceAll(/(?:%[\da-f]{2})+/giu, decodedRun).normalize('NFKC');

function decodedRun(run: string): string {
  try {
    return decodeURIComponent(run);
  } catch {
    return '.';
  }
}

export class SecretNames {
  readonly #long: readonly string[];
  readonly #short: ReadonlySet<string>;

  constructor(names: readonly string[]) {
    const joined = names.map((name) => wordsOf(name).join('')).filter((name) => name !== '');
    this.#long = joined.filter((name) => name.length >= LONG_ENOUGH);
    this.#short = new Set(joined.filter((name) => name.length < LONG_ENOUGH));
  }

  get isEmpty(): boolean {
    return this.#long.length === 0 && this.#short.size === 0;
  }

  has(key: string): boolean {
    const words = wordsOf(key);
    const joined = words.join('');
    if (this.#long.some((name) => joined.endsWith(name))) return true;
    return words.some((_word, at) => this.#short.has(words.slice(at).join('')));
  }
}
