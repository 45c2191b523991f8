/** Strings, so that digits inside them are left alone, and numbers. */
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/gu;
/** Fewer digits than this always fit. */
const SAFE_DIGITS = 15;
const MAY_BE_LONG = /\d[\d.]{15}/u;

const digitsOf = (token: string): string =>
  token
    .replace(/[eE].*$/u, '')
    .replace(/^-?[0.]*/u, '')
    .replace('.', '');

function fits(token: string): boolean {
  if (digitsOf(token).length <= SAFE_DIGITS) return true;
  const number = Number(token);
  if (!/[.eE]/u.test(token)) return Number.isSafeInteger(number);
  const trimmed = token.includes('.') ? token.replace(/0+$/u, '').replace(/\.$/u, '') : token;
  return String(number) === trimmed;
}

/** JSON in which numbers that a JavaScript number cannot hold come as their text. */
export function parseExact(json: string): unknown {
  if (!MAY_BE_LONG.test(json)) return JSON.parse(json);
  return JSON.parse(
    json.replaceAll(TOKENS, (token) => (token.startsWith('"') || fits(token) ? token : `"${token}"`)),
  );
}
