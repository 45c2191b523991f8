import { styleText } from 'node:util';
import type { Sink } from '../terminal.js';

export type Style = Parameters<typeof styleText>[0];
export type Paint = (style: Style, text: string) => string;

/** Paints only on a terminal, and only if colours are not turned off. */
export const painter = (
  out: Sink,
  env: Readonly<Record<string, string | undefined>>,
  wanted = true,
): Paint =>
  wanted && out.isTTY === true && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb'
    ? (style, text) => styleText(style, text, { validateStream: false })
    : (_style, text) => text;

/** Characters that move the cursor, change colours, or reverse the direction of text. */
const UNSEEN = /[\p{Cc}\p{Cf}\u2028\u2029]+/gu;

/** Names, errors and payloads are untrusted: nothing in them may move the cursor or change colours. */
export const clean = (text: string): string => text.replaceAll(UNSEEN, ' ').trim();

/** Filters a finished line: keeps line ends and, if `painted`, the colours of this program. */
export function harmless(text: string, painted: boolean): string {
  // eslint-disable-next-line no-control-regex -- these are what must not get through
  const parts = /\u001B\[(?:[012]|22|3[12369])m|[\p{Cc}\p{Cf}\u2028\u2029]/gu;
  return text.replaceAll(parts, (found) => {
    if (found === '\n' || (painted && found.length > 1)) return found;
    return found.length > 1 ? '' : ' ';
  });
}

/** JSON that is safe to show on a terminal: escapes what JSON leaves as it is and a terminal would obey. */
export function jsonText(value: unknown, indent?: number): string {
  const text = (JSON.stringify(value, undefined, indent) as string | undefined) ?? 'null';
  return text.replaceAll(/[\u007F-\u009F\p{Cf}\u2028\u2029]/gu, (found) =>
    Array.from({ length: found.length }, (_, at) => escapedUnit(found.charCodeAt(at))).join(''),
  );
}

const escapedUnit = (unit: number): string => String.raw`\u${unit.toString(16).padStart(4, '0')}`;

/** How many columns a text takes, approximately. */
export const widthOf = (text: string): number => Array.from(text).length;

export const cut = (text: string, width: number): string =>
  widthOf(text) <= width
    ? text
    : `${Array.from(text)
        .slice(0, Math.max(0, width - 1))
        .join('')}…`;

/** Breaks at spaces. A word that is too long stays whole, so that it can be copied. */
export function wrap(text: string, width: number): string[] {
  const lines = [''];
  for (const word of text.split(' ')) {
    const last = lines[lines.length - 1] ?? '';
    if (last === '') lines[lines.length - 1] = word;
    else if (widthOf(last) + 1 + widthOf(word) <= width) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

export const plural = (count: number, one: string, many = `${one}s`): string =>
  `${count.toLocaleString('en-US')} ${count === 1 ? one : many}`;
/** Like `clean`, for texts of several lines. */
export const cleanLines = (text: string): string =>
  text
    .split('\n')
    .map((line) => line.replaceAll(UNSEEN, ' ').trimEnd())
    .join('\n');
