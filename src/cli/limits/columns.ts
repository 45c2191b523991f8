/** How limits and their keys look in a list. */
import type { KeyUse, LimitState } from '../../index.js';
import { limitsText } from '../../mill/tools.js';
import type { Column } from '../render/table.js';
import { relative } from '../render/time.js';

const usePart = (use: number, most: number | undefined): string =>
  most === undefined ? String(use) : `${String(use)}/${String(most)}`;

function breakerText({ breaker }: LimitState): string {
  if (breaker === undefined) return '';
  if (breaker.state === 'trial') return 'trying one start';
  return breaker.until === undefined
    ? breaker.state
    : `open, tries ${relative(breaker.until, Date.now(), 1)}`;
}

export const LIMIT_COLUMNS: readonly Column<LimitState>[] = [
  { head: 'NAME', text: ({ name }) => name },
  { head: 'KIND', text: ({ kind }) => kind, style: () => 'dim' },
  {
    head: 'RUNNING',
    text: ({ use, limits }) => (use.running === undefined ? '' : usePart(use.running, limits.concurrency)),
    align: 'right',
    style: ({ use, limits }) =>
      limits.concurrency !== undefined && (use.running ?? 0) >= limits.concurrency ? 'yellow' : undefined,
  },
  {
    head: 'STARTS',
    text: ({ use, limits }) =>
      limits.rate === undefined ? '' : usePart(use.startsInWindow, limits.rate.limit),
    align: 'right',
  },
  { head: 'WAITING', text: ({ use }) => use.waiting.toLocaleString('en-US'), align: 'right' },
  {
    head: 'BREAKER',
    text: breakerText,
    style: ({ breaker }) => (breaker?.state === 'closed' ? 'green' : 'red'),
  },
  {
    head: 'SOURCE',
    text: ({ source }) => source,
    style: ({ source }) => (source === 'set' ? 'yellow' : 'dim'),
  },
  { head: 'LIMITS', text: ({ limits }) => limitsText(limits), grows: true },
];

export const KEY_COLUMNS: readonly Column<KeyUse>[] = [
  { head: 'KEY', text: ({ key }) => (key === '' ? '(none)' : key) },
  { head: 'RUNNING', text: ({ running }) => String(running), align: 'right' },
  { head: 'WAITING', text: ({ due }) => `${String(due)}${due >= 1_000 ? '+' : ''}`, align: 'right' },
  {
    head: 'SINCE',
    text: ({ dueSince }) => (dueSince === undefined ? '' : relative(dueSince, Date.now(), 1)),
  },
  {
    head: 'RATE FREE',
    text: ({ rateFreeAt }) => (rateFreeAt === undefined ? '' : relative(rateFreeAt, Date.now(), 1)),
  },
  { head: 'NEXT', text: ({ head }) => head ?? '', grows: true, style: () => 'dim' },
];
