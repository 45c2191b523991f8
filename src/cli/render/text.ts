import { styleText } from 'node:util';
import type { Sink } from '../world.js';

export type Style = Parameters<typeof styleText>[0];
export type Paint = (style: Style, text: string) => string;

/** Colours only on a terminal, and not where somebody asked for none. */
export const painter = (
  out: Sink,
  env: Readonly<Record<string, string | undefined>>,
  wanted = true,
): Paint =>
  wanted && out.isTTY === true && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb'
    ? (style, text) => styleText(style, text, { validateStream: false })
    : (_style, text) => text;

/** Names, errors and payloads come from elsewhere: nothing in them may move the cursor or change colours. */
export const clean = (text: string): string => text.replaceAll(/[\p{Cc}\p{Cf}\u2028\u2029]+/gu, ' ').trim();

/** How many columns it takes, near enough. */
export const widthOf = (text: string): number => Array.from(text).length;

export const cut = (text: string, width: number): string =>
  widthOf(text) <= width
    ? text
    : `${Array.from(text)
        .slice(0, Math.max(0, width - 1))
        .join('')}…`;

/** Breaks at spaces; a word that is too long stays whole, so that it can be copied. */
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
/** The same for texts of several lines. */
export const cleanLines = (text: string): string =>
  text
    .split('\n')
    .map((line) => line.replaceAll(/[\p{Cc}\p{Cf}\u2028\u2029]+/gu, ' ').trimEnd())
    .join('\n');
