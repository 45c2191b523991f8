/**
 * Intervals as Agenda and Pulse read them: `3 minutes`, `one day and 2 hours`, `90000`. A month is 30 days there, and a
 * year 365.
 */
const UNITS: Readonly<Record<string, number>> = {
  second: 1_000,
  minute: 60_000,
  hour: 3_600_000,
  day: 86_400_000,
  week: 604_800_000,
  month: 2_592_000_000,
  year: 31_536_000_000,
};

const WORDS = (
  'zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen ' +
  'eighteen nineteen twenty'
).split(' ');
const TENS: Readonly<Record<string, number>> = { thirty: 30, forty: 40, fifty: 50, sixty: 60, ninety: 90 };

function amountOf(text: string): number {
  if (text === '' || text === 'a' || text === 'an') return 1;
  if (/^\d+(?:\.\d+)?$/u.test(text)) return Number(text);
  const word = WORDS.indexOf(text);
  return word < 0 ? (TENS[text] ?? Number.NaN) : word;
}

/** True for a text that names a unit of time, so that it is no cron text. */
export const isHuman = (text: string): boolean => /(?:second|minute|hour|day|week|month|year)s?/u.test(text);

/** Milliseconds; undefined if the text means something else, or nothing that is certain. */
export function humanInterval(value: string | number): number | undefined {
  if (typeof value === 'number' || /^\s*\d+(?:\.\d+)?\s*$/u.test(value)) return positive(Number(value));
  let rest = value
    .toLowerCase()
    .replaceAll(/(?:[^a-z\d.-]|\band\b)+/gu, ' ')
    .trim();
  let sum = 0;
  while (rest !== '') {
    const found = /^(?<amount>.*?)(?<unit>second|minute|hour|day|week|month|year)s?(?![a-z])/u.exec(rest);
    const { amount = '', unit = '' } = found?.groups ?? {};
    const ms = amountOf(amount.trim()) * (UNITS[unit] ?? Number.NaN);
    if (found === null || Number.isNaN(ms)) return undefined;
    sum += ms;
    rest = rest.slice(found[0].length).trim();
  }
  return positive(sum);
}

const positive = (ms: number): number | undefined =>
  ms >= 1 && Number.isFinite(ms) ? Math.round(ms) : undefined;
