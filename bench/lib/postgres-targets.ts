import type { Row } from './bench.js';
import { atLeast, atMost, figuresOf, type Figure, type Target } from './targets.js';

const SETTINGS = ['default', 'tuned100', 'tuned500', 'tuned1000'];
const DELETING = SETTINGS.map((setting) => `${setting} deletes`);

/** The targets on PostgreSQL, compared with the figures of this run. */
export function postgresTargets(rows: readonly Row[]): Target[] {
  const figure = figuresOf(rows);
  return [...processingTargets(figure), ...latencyTargets(figure), ...otherTargets(figure)];
}

function processingTargets(figure: Figure): Target[] {
  const rate = (contender: string, variant: string): number =>
    figure('processing', contender, variant, 'jobs/s');
  const best = (variants: readonly string[]): number =>
    Math.max(...variants.map((variant) => rate('tidemill', variant)));
  const [kept, deleted] = [best(SETTINGS), best(DELETING)];
  const boss = Math.max(rate('pg-boss', 'batch500'), rate('pg-boss', 'twice500'));
  const graphile = Math.max(rate('graphile-worker', 'local500'), rate('graphile-worker', 'local1000'));
  const many = (contender: string, variant: string): number =>
    figure('enqueueing', contender, variant, 'many, 1,000 a call, jobs/s');
  const times = (target: string, value: number, limit: number): Target =>
    atLeast(target, value, limit, ' times');
  const half = (target: string, value: number): Target => atLeast(target, value, 0.5);
  return [
    times("processing at least 1.3 times pg-boss's best, both keep finished jobs", kept / boss, 1.3),
    times(
      "processing at least 1.3 times pg-boss's best, both keep them, our defaults",
      rate('tidemill', 'default') / boss,
      1.3,
    ),
    times("processing at least 1.3 times graphile-worker's best, both delete them", deleted / graphile, 1.3),
    times(
      "processing at least 1.3 times graphile-worker's best, both delete them, our defaults",
      rate('tidemill', 'default deletes') / graphile,
      1.3,
    ),
    times(
      "enqueueMany at least level with pg-boss's",
      many('tidemill', 'default') / Math.max(many('pg-boss', 'batch500'), many('pg-boss', 'default')),
      1,
    ),
    times(
      "enqueueMany at least level with graphile-worker's",
      many('tidemill', 'default') / many('graphile-worker', 'local500'),
      1,
    ),
    half('processing at least half of raw batches of 100, same indexes', kept / rate('raw', 'all100')),
    half('processing at least half of raw batches of 500, same indexes', kept / rate('raw', 'all500')),
    half('processing at least half of raw batches of 500, one index', kept / rate('raw', 'claim500')),
    half(
      'processing at least half of raw batches of 500, one index, both delete finished jobs',
      deleted / rate('raw', 'claim500 deletes'),
    ),
  ];
}

/** The lower of graphile-worker's two rows counts as its best. */
function latencyTargets(figure: Figure): Target[] {
  return ['two processes', 'one process'].flatMap((place) => {
    const of = (contender: string, variant: string, column: string): number =>
      figure(`latency, ${place}`, contender, variant, column);
    return ['p99 ms', 'p50 ms'].flatMap((column) => {
      const ours = of('tidemill', 'default', column);
      const graphile = Math.min(
        ...['local500', 'jobs24'].map((variant) => of('graphile-worker', variant, column)),
      );
      const boss = of('pg-boss', 'batch500', column);
      return [
        atMost(`latency, ${place}: ${column} at most graphile-worker's best`, ours / graphile, 1, ' times'),
        atMost(`latency, ${place}: ${column} below pg-boss's`, ours / boss, 1, ' times'),
      ];
    });
  });
}

function otherTargets(figure: Figure): Target[] {
  const several = ['default', 'tuned100'].flatMap((variant) => {
    const of = (processes: number, column: string): number =>
      figure(
        'several processes',
        'tidemill',
        variant,
        column,
        (row) => row.figures['processes'] === processes,
      );
    return [
      atLeast(
        `two processes at least 1.5 times one: ${variant}`,
        of(2, 'jobs/s') / of(1, 'jobs/s'),
        1.5,
        ' times',
      ),
      atMost(`empty or short claims of four processes: ${variant}`, of(4, 'wasted %'), 10, ' %'),
    ];
  });
  return [
    ...several,
    atLeast(
      '500,000 finished rows: within 10 % of empty',
      figure('500,000 finished rows', 'tidemill', 'tuned100', 'full / empty'),
      0.9,
    ),
    atMost('idle: at most 0.5 statements/s', figure('idle', 'tidemill', 'default', 'statements/s'), 0.5),
  ];
}
