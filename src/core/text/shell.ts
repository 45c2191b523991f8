/** Quotes names for commands that users copy into a shell, so that each name stays one word. */

const PLAIN = /^[\w./:@%+,-]+$/u;
const UNSEEN = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;

const escapedUnit = (unit: string): string =>
  String.raw`\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;

/** A positional argument at the end of a command line. After `--`, a text that begins with `-` is not an option. */
export const shellArgument = (text: string): string =>
  text.startsWith('-') ? `-- ${shellWord(text)}` : shellWord(text);

/** Quotes a text as one word for sh. With invisible characters, the result needs bash or zsh. */
export function shellWord(text: string): string {
  if (PLAIN.test(text) && !text.startsWith('-')) return text;
  if (text.search(UNSEEN) < 0) return `'${text.replaceAll("'", String.raw`'\''`)}'`;
  const quoted = text.replaceAll(/[\\']/gu, String.raw`\$&`);
  return `$'${quoted.replaceAll(UNSEEN, (char) => char.split('').map(escapedUnit).join(''))}'`;
}
