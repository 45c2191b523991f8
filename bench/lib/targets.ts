import type { Row } from './bench.js';
import { round } from './stats.js';

export interface Target {
  readonly target: string;
  readonly measured: string;
  readonly met: boolean | null;
}

/** The settings and backlogs that are measured with several processes. */
const SEVERAL = [
  ['default', 40_000],
  ['tuned100', 40_000],
  ['tuned100', 100_000],
] as const;

/** Looks up a figure; NaN if this run did not measure it. */
export type Figure = (
  section: string,
  contender: string,
  variant: string,
  column: string,
  also?: (row: Row) => boolean,
) => number;

export const figuresOf =
  (rows: readonly Row[]): Figure =>
  (section, contender, variant, column, also) => {
    const row = rows.find(
      (one) =>
        one.section === section &&
        one.contender === contender &&
        one.variant === variant &&
        (also?.(one) ?? true),
    );
    return Number(row?.figures[column] ?? NaN);
  };

const check = (target: string, value: number, met: boolean, unit = ''): Target => ({
  target,
  measured: Number.isNaN(value) ? 'not measured' : `${round(value, 2)}${unit}`,
  met: Number.isNaN(value) ? null : met,
});

export const atLeast = (target: string, value: number, limit: number, unit = ''): Target =>
  check(target, value, value >= limit, unit);

export const atMost = (target: string, value: number, limit: number, unit = ''): Target =>
  check(target, value, value <= limit, unit);

/** The targets, compared with the figures of this run. `met` is null if this run did not measure the figure. */
export function targets(rows: readonly Row[]): Target[] {
  const figure = figuresOf(rows);
  return [...jobTargets(figure), ...documentTargets(figure), ...reactiveTargets(figure)];
}

function documentTargets(figure: Figure): Target[] {
  const rate = (contender: string, variant: string): number =>
    figure('documents', contender, variant, 'documents/s');
  const best = (contender: string, variants: readonly string[]): number =>
    Math.max(...variants.map((variant) => rate(contender, variant)));
  return [
    atLeast(
      'documents: one at a time at least as fast as mongodb-cron',
      rate('documents', 'serial') / rate('mongodb-cron', 'loops1'),
      1,
      ' times',
    ),
    atLeast(
      "documents: with concurrency at least 3 times mongodb-cron's best",
      best('documents', ['at10', 'at100']) / best('mongodb-cron', ['loops10', 'loops100']),
      3,
      ' times',
    ),
    atMost(
      'documents: idle, at most 1.1 commands/s',
      figure('documents, idle', 'documents', 'serial', 'commands/s'),
      1.1,
    ),
  ];
}

function reactiveTargets(figure: Figure): Target[] {
  const PLAIN = 'reactive tasks';
  const FETCHING = 'reactive tasks, with getDocument';
  const rate = (section: string, contender: string, variant: string): number =>
    figure(section, contender, variant, 'tasks/s');
  // The fastest of the three is the limit.
  const raw = Math.max(
    ...['chain500', 'chain1000', 'stream1000'].map((variant) => rate(PLAIN, 'raw', variant)),
  );
  const settings = [
    ['tuned100', 'concurrency 100'],
    ['default', 'our defaults'],
  ] as const;
  const rates = settings.flatMap(([variant, words]) => [
    atLeast(
      `reactive: at least 8 times mongodash's tasks per second, ${words} against its best`,
      rate(PLAIN, 'tidemill', variant) / rate(PLAIN, 'mongodash', 'tuned100'),
      8,
      ' times',
    ),
    atLeast(
      `reactive: at least 6 times mongodash's tasks per second with getDocument, ${words} against its best`,
      rate(FETCHING, 'tidemill', variant) / rate(FETCHING, 'mongodash', 'tuned100'),
      6,
      ' times',
    ),
    atLeast(
      `reactive: at least half of the raw chain of plan, claim and settle, ${words}`,
      rate(PLAIN, 'tidemill', variant) / raw,
      0.5,
    ),
  ]);
  const latencies = (
    [
      ['leader', "the leader's own process", 10],
      ['another instance', 'another instance', 25],
    ] as const
  ).flatMap(([place, words, p50]) =>
    (['', ' after the answer'] as const).flatMap((column) =>
      (
        [
          ['p50', p50],
          ['p99', 100],
        ] as const
      ).map(([share, limit]) =>
        atMost(
          `reactive, ${words}: ${share} under ${limit} ms, from the ${column === '' ? 'call' : 'answer'} of the write`,
          figure(`reactive latency, ${place}`, 'tidemill', 'default', `${share} ms${column}`),
          limit,
          ' ms',
        ),
      ),
    ),
  );
  return [...rates, ...latencies];
}

function jobTargets(figure: Figure): Target[] {
  const rate = (contender: string, variant: string): number =>
    figure('processing', contender, variant, 'jobs/s');
  // The best of our three settings against the best of each contender. Defaults have rows of their own.
  const best = Math.max(...['default', 'tuned100', 'tuned500'].map((variant) => rate('tidemill', variant)));
  const agenda = Math.max(...['poll', 'stream'].map((variant) => rate('agenda', variant)));
  const many = (contender: string, variant: string): number =>
    figure('enqueueing', contender, variant, 'many, 1,000 a call, jobs/s');
  const serial = (contender: string, variant: string): number =>
    figure('enqueueing', contender, variant, 'one after the other, jobs/s');
  const two = (column: string): number => figure('latency, two processes', 'tidemill', 'default', column);
  const one = (column: string): number => figure('latency, one process', 'tidemill', 'default', column);
  const several = SEVERAL.flatMap(([variant, jobs]) => {
    const of = (count: number, column: string): number =>
      figure(
        'several processes',
        'tidemill',
        variant,
        column,
        ({ figures }) => figures['processes'] === count && figures['jobs'] === jobs,
      );
    const what = `${variant}, backlog of ${jobs.toLocaleString('en')}`;
    return [
      atLeast(
        `two processes at least 1.3 times one: ${what}`,
        of(2, 'jobs/s') / of(1, 'jobs/s'),
        1.3,
        ' times',
      ),
      atMost(`empty or short claims of two processes: ${what}`, of(2, 'wasted %'), 10, ' %'),
      atMost(`empty or short claims of four processes: ${what}`, of(4, 'wasted %'), 10, ' %'),
    ];
  });
  return [
    atLeast("processing at least 10 times Agenda's rate, best settings", best / agenda, 10, ' times'),
    atLeast(
      "processing at least 10 times Agenda's rate, our defaults against its best",
      rate('tidemill', 'default') / agenda,
      10,
      ' times',
    ),
    atLeast(
      'processing at least 80 % of the raw batched limit, batches of 100, same indexes, our defaults',
      rate('tidemill', 'default') / rate('raw', 'all100'),
      0.8,
    ),
    atLeast(
      'processing at least 80 % of the raw batched limit, batches of 500, same indexes, our defaults',
      rate('tidemill', 'default') / rate('raw', 'all500'),
      0.8,
    ),
    atLeast(
      'processing at least 80 % of the raw batched limit, batches of 500, same indexes, best settings',
      best / rate('raw', 'all500'),
      0.8,
    ),
    atLeast(
      'processing at least half of the raw batched limit, batches of 500, one index only, best settings',
      best / rate('raw', 'claim500'),
      0.5,
    ),
    ...several,
    atLeast(
      'enqueueMany at least half of insertMany, same indexes',
      many('tidemill', 'default') / many('raw', 'all500'),
      0.5,
    ),
    atLeast(
      'enqueueMany at least half of insertMany, one index only',
      many('tidemill', 'default') / many('raw', 'claim500'),
      0.5,
    ),
    atLeast(
      "one enqueue after the other at least level with Agenda's",
      serial('tidemill', 'default') / serial('agenda', 'poll'),
      1,
      ' times',
    ),
    atMost('idle, another process: p50 under 5 ms, from the call', two('p50 ms'), 5, ' ms'),
    atMost(
      'idle, another process: p50 under 3 ms, from the answer',
      two('p50 ms after the answer'),
      3,
      ' ms',
    ),
    atMost('idle, another process: p99 under 15 ms, from the call', two('p99 ms'), 15, ' ms'),
    atMost(
      'idle, another process: p99 under 15 ms, from the answer',
      two('p99 ms after the answer'),
      15,
      ' ms',
    ),
    atMost('idle, same process: p50 under 2 ms, from the call', one('p50 ms'), 2, ' ms'),
    atMost('idle, same process: p50 under 2 ms, from the answer', one('p50 ms after the answer'), 2, ' ms'),
    atLeast(
      '400,000 other jobs: within 10 % of empty',
      figure('full collection', 'tidemill', 'tuned100', 'full / empty'),
      0.9,
    ),
    atMost(
      'first handler of 10,000 within 100 ms',
      figure('backlog of 10,000', 'tidemill', 'default', 'first handler ms'),
      100,
      ' ms',
    ),
    atLeast(
      'rate flat to the end (second half / first half)',
      figure('backlog of 10,000', 'tidemill', 'tuned100', 'second half / first half'),
      0.9,
    ),
    atMost('idle: at most 0.3 commands/s', figure('idle', 'tidemill', 'default', 'commands/s'), 0.3),
  ];
}

export function targetTable(all: readonly Target[]): string {
  const word = (met: boolean | null): string => (met === null ? '–' : met ? 'met' : 'NOT met');
  const lines = all.map(({ target, measured, met }) => `| ${target} | ${measured} | ${word(met)} |`);
  return ['### targets', '', '| target | measured | |', '| --- | --- | --- |', ...lines].join('\n');
}
