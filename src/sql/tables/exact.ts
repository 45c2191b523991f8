/**
 * Matches strings, so that digits inside them are left alone, and numbers. Every quote begins a string, even if it does
 * not end.
 */
const TOKENS = /"(?:[^"\\]|\\.)*"?|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/gu;
/** A number with at most this many significant digits always fits. */
const SAFE_DIGITS = 15;
const MAY_BE_LONG = /\d[\d.]{15}/u;

/** The significant digits: without sign, point, exponent, and zeros at both ends. */
function digitsOf(token: string): string {
  const digits = token.replace(/[eE].*$/u, '').replaceAll(/[-.]/gu, '');
  let [start, end] = [0, digits.length];
  while (start < end && digits[start] === '0') start += 1;
  // Not with a regular expression, which would scan every run of zeros from each of its positions.
  while (end > start && digits[end - 1] === '0') end -= 1;
  return digits.slice(start, end);
}

function fits(token: string): boolean {
  const number = Number(token);
  if (!/[.eE]/u.test(token)) return Number.isSafeInteger(number);
  const digits = digitsOf(token);
  return digits.length <= SAFE_DIGITS || digits === digitsOf(String(number));
}

/** Parses JSON, and returns numbers that a JavaScript number cannot hold as texts. */
export function parseExact(json: string): unknown {
  if (!MAY_BE_LONG.test(json)) return JSON.parse(json);
  return JSON.parse(
    json.replaceAll(TOKENS, (token) => (token.startsWith('"') || fits(token) ? token : `"${token}"`)),
  );
}
