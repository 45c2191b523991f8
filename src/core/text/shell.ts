/** Words of commands that people copy into a shell: a name is one word there, whatever is in it. */

const PLAIN = /^[\w./:@%+,-]+$/u;
const UNSEEN = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;

const escapedUnit = (unit: string): string =>
  String.raw`\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;

/** The last words of a command line: a text that begins with `-` would be an option there. */
export const shellArgument = (text: string): string =>
  text.startsWith('-') ? `-- ${shellWord(text)}` : shellWord(text);

/** A text as one word for sh; where it has characters that cannot be seen, for bash and zsh. */
export function shellWord(text: string): string {
  if (PLAIN.test(text) && !text.startsWith('-')) return text;
  if (text.search(UNSEEN) < 0) return `'${text.replaceAll("'", String.raw`'\''`)}'`;
  const quoted = text.replaceAll(/[\\']/gu, String.raw`\$&`);
  return `$'${quoted.replaceAll(UNSEEN, (char) => char.split('').map(escapedUnit).join(''))}'`;
}
