/** Strings, so that digits inside them are left alone, and numbers. */
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/gu;
/** Fewer digits than this always fit. */
const SAFE_DIGITS = 15;
const MAY_BE_LONG = /\d[\d.]{15}/u;

/** Those that say something, without sign, point, exponent and the zeros at both ends. */
const digitsOf = (token: string): string =>
  token
    .replace(/[eE].*$/u, '')
    .replaceAll(/[-.]/gu, '')
    .replaceAll(/^0+|0+$/gu, '');

function fits(token: string): boolean {
  const number = Number(token);
  if (!/[.eE]/u.test(token)) return Number.isSafeInteger(number);
  const digits = digitsOf(token);
  return digits.length <= SAFE_DIGITS || digits === digitsOf(String(number));
}

/** JSON in which numbers that a JavaScript number cannot hold come as their text. */
export function parseExact(json: string): unknown {
  if (!MAY_BE_LONG.test(json)) return JSON.parse(json);
  return JSON.parse(
    json.replaceAll(TOKENS, (token) => (token.startsWith('"') || fits(token) ? token : `"${token}"`)),
  );
}
