import type { Document } from 'mongodb';
import {
  FAILURE_SLICES,
  scopeText,
  WAITING_MS,
  type ScopeAsk,
  type ScopeLimits,
  type ScopeRef,
} from '../../store/port.js';
import type { RateState } from '../../time/rate.js';
import { literal, type GlobalDocument } from '../context.js';

/** What one life has of a scope. Times are numbers, in milliseconds of the server's clock. */
interface HolderDocument {
  readonly life: string;
  readonly seq: number;
  readonly held: number;
  readonly claimsUntil: number;
  readonly gone: boolean;
  /** What a repeated ask is answered with. */
  readonly last: {
    readonly at: number;
    readonly starts: number;
    readonly notAfter: number;
    readonly countedAs: number;
    readonly trial: boolean;
  };
}

export interface BreakerDocument {
  readonly state: 'closed' | 'open' | 'trial';
  readonly until: number;
  readonly by: string;
}

/** How the last exchange ended, for its caller, who gets the document as that exchange left it. */
export interface AnswerDocument {
  readonly kind: 'stale' | 'repeated' | 'granted';
  readonly now: number;
  readonly had: number;
  readonly contended: { readonly by: string; readonly until: number };
  /** Absent parts: nothing was granted. */
  readonly starts: number;
  readonly passed: number;
  readonly trial: boolean;
  readonly breaker: BreakerDocument;
  /** The breaker before the outcomes that were told. */
  readonly was: BreakerDocument;
}

/** A scope as stored. */
export interface ScopeDocument extends GlobalDocument {
  readonly scope: ScopeRef;
  readonly limits: ScopeLimits;
  /** JSON texts: values of others, whose field names may be anything. */
  readonly code: string;
  readonly set: string;
  readonly rev: number;
  readonly holders: readonly HolderDocument[];
  readonly rate: RateState;
  readonly breaker: BreakerDocument;
  readonly contended: { readonly by: string; readonly until: number };
  readonly answer?: AnswerDocument;
}

export const idOf = (scope: ScopeRef): string => `limit:${scopeText(scope)}`;

export const CLOSED: BreakerDocument = { state: 'closed', until: 0, by: '' };
export const NOW: Document = { $toDouble: '$$NOW' };

const and = (...terms: unknown[]): Document => ({ $and: terms });
const not = (term: unknown): Document => ({ $not: [term] });
const sumOf = (list: string, field: string): Document => ({ $sum: `${list}.${field}` });
const has = (path: string): Document => ({ $ne: [{ $type: path }, 'missing'] });
const filtered = (input: unknown, cond: Document): Document => ({ $filter: { input, as: 'one', cond } });
/** The first multiple of `step` that is not before `time`. */
const sliceEnd = (time: unknown, step: unknown): Document => ({
  $multiply: [{ $ceil: { $divide: [time, step] } }, step],
});
const openUntil = (until: unknown): Document => ({ state: 'open', until, by: '' });
const afterPause = { $add: ['$_.now', '$limits.breaker.pauseMs'] };

/** Who asks, and whether the ask is new. */
const asked = (life: string, { seq }: ScopeAsk): Document[] => [
  {
    $set: {
      '_.now': NOW,
      '_.mine': {
        $ifNull: [{ $first: filtered('$holders', { $eq: ['$$one.life', literal(life)] }) }, null],
      },
    },
  },
  {
    $set: {
      '_.kind': {
        $switch: {
          branches: [
            { case: { $eq: ['$_.mine', null] }, then: 'granted' },
            { case: { $or: ['$_.mine.gone', { $gt: ['$_.mine.seq', seq] }] }, then: 'stale' },
            { case: { $eq: ['$_.mine.seq', seq] }, then: 'repeated' },
          ],
          default: 'granted',
        },
      },
      '_.had': { $ifNull: ['$_.mine.held', 0] },
    },
  },
];

/** Step 1: what counts no more. */
const forgotten: Document = {
  $set: {
    '_.holders': filtered('$holders', not(and('$$one.gone', { $lte: ['$$one.claimsUntil', '$_.now'] }))),
    '_.failures': {
      $cond: [
        has('$limits.breaker'),
        filtered('$failures', {
          $gt: ['$$one.end', { $subtract: ['$_.now', '$limits.breaker.withinMs'] }],
        }),
        [],
      ],
    },
    '_.breaker': { $cond: [has('$limits.breaker'), '$breaker', literal(CLOSED)] },
  },
};

/** Step 2: as `givenBack` in time/rate.ts, for one entry after the other. */
const givenBack = ({ unused = [] }: ScopeAsk): Document => {
  const isIt = { $eq: ['$$one.end', '$$this.end'] };
  const known = { $sum: { $map: { input: filtered('$$value.starts', isIt), as: 'one', in: '$$one.count' } } };
  const less = {
    $map: {
      input: '$$value.starts',
      as: 'one',
      in: {
        end: '$$one.end',
        count: { $subtract: ['$$one.count', { $cond: [isIt, '$$back', 0] }] },
      },
    },
  };
  const after = {
    next: { $subtract: ['$$value.next', { $multiply: ['$$back', '$pace.spacing'] }] },
    starts: filtered(less, { $gt: ['$$one.count', 0] }),
  };
  return {
    $reduce: {
      input: literal(unused.map(({ countedAs, count }) => ({ end: countedAs, count }))),
      initialValue: '$rate',
      in: { $let: { vars: { back: { $min: ['$$this.count', known] } }, in: after } },
    },
  };
};

const unusedBack = (ask: ScopeAsk): Document => ({
  $set: {
    '_.rate': {
      $cond: [has('$limits.rate'), (ask.unused ?? []).length === 0 ? '$rate' : givenBack(ask), '$rate'],
    },
  },
});

/** Step 3: the breaker, first its trial, else the failures. */
function outcomes(life: string, { trial, failures = 0 }: ScopeAsk): Document[] {
  const tried = and({ $eq: ['$_.breaker.state', 'trial'] }, { $eq: ['$_.breaker.by', literal(life)] });
  const isTold = trial === undefined ? false : and(has('$limits.breaker'), tried);
  const afterTrial =
    trial === 'succeeded' ? literal(CLOSED) : openUntil(trial === 'failed' ? afterPause : '$_.now');
  const counts = and(has('$limits.breaker'), { $eq: ['$_.breaker.state', 'closed'] }, failures > 0);
  const slice = { $max: [1, { $ceil: { $divide: ['$limits.breaker.withinMs', FAILURE_SLICES] } }] };
  const more = [{ end: sliceEnd('$_.now', slice), count: failures }];
  const isTooMuch = {
    $gte: [{ $add: [sumOf('$_.failures', 'count'), failures] }, '$limits.breaker.failures'],
  };
  return [
    {
      $set: {
        '_.told': {
          $switch: {
            branches: [
              { case: isTold, then: afterTrial },
              { case: and(counts, isTooMuch), then: openUntil(afterPause) },
            ],
            default: '$_.breaker',
          },
        },
        '_.failures': {
          $switch: {
            branches: [
              { case: isTold, then: trial === 'succeeded' ? [] : '$_.failures' },
              { case: and(counts, isTooMuch), then: [] },
              { case: counts, then: { $concatArrays: ['$_.failures', more] } },
            ],
            default: '$_.failures',
          },
        },
      },
    },
  ];
}

/** Steps 4 and 5 up to the rate: permits, and the starts that permits and the breaker let through. */
function permitted({ hold, inUse, starts }: ScopeAsk): Document[] {
  const concurrency = { $ifNull: ['$limits.concurrency', Infinity] };
  const free = { $max: [0, { $subtract: [concurrency, sumOf('$_.holders', 'held')] }] };
  const more = { $add: ['$_.had', { $min: [{ $subtract: [hold, '$_.had'] }, free] }] };
  const tries = and({ $eq: ['$_.told.state', 'open'] }, { $lte: ['$_.told.until', '$_.now'] });
  return [
    { $set: { '_.held': { $cond: [{ $lte: [hold, '$_.had'] }, hold, more] } } },
    {
      $set: {
        '_.tries': tries,
        '_.wanted': { $max: [0, { $min: [starts, { $subtract: ['$_.held', inUse] }] }] },
      },
    },
    {
      $set: {
        '_.passed': {
          $switch: {
            branches: [
              { case: { $eq: ['$_.told.state', 'closed'] }, then: '$_.wanted' },
              { case: '$_.tries', then: { $min: [1, '$_.wanted'] } },
            ],
            default: 0,
          },
        },
      },
    },
  ];
}

/** Step 5: the rate, as `grantStarts` in time/rate.ts. */
function rated({ withinMs }: ScopeAsk): Document[] {
  const kept = filtered('$_.rate.starts', {
    $gt: ['$$one.end', { $subtract: ['$_.now', '$limits.rate.perMs'] }],
  });
  const end = sliceEnd({ $add: ['$_.now', withinMs] }, '$pace.slice');
  const isLate = { $gt: [{ $subtract: ['$_.next', '$pace.tolerance'] }, '$_.now'] };
  const ahead = { $subtract: [{ $add: ['$_.now', '$pace.tolerance'] }, '$_.next'] };
  const spaced = { $add: [{ $floor: { $divide: [ahead, '$pace.spacing'] } }, 1] };
  const room = { $subtract: ['$limits.rate.limit', sumOf('$_.kept', 'count')] };
  const byRate = { $max: [0, { $min: ['$_.passed', room, { $cond: [isLate, 0, spaced] }] }] };
  const others = filtered('$_.kept', { $ne: ['$$one.end', '$_.end'] });
  const same = { $sum: { $map: { input: '$_.kept', as: 'one', in: { $cond: [isEnd, '$$one.count', 0] } } } };
  const added = { end: '$_.end', count: { $add: ['$_.starts', same] } };
  const starts = {
    $sortArray: { input: { $concatArrays: [others, [added]] }, sortBy: { end: 1 } },
  };
  const moved = { $add: ['$_.next', { $multiply: ['$_.starts', '$pace.spacing'] }] };
  const granted = {
    next: { $cond: [{ $eq: ['$_.starts', 0] }, '$_.rate.next', moved] },
    starts: { $cond: [{ $eq: ['$_.starts', 0] }, '$_.kept', starts] },
  };
  return [
    { $set: { '_.kept': kept, '_.end': end, '_.next': { $max: ['$_.rate.next', '$_.now'] } } },
    { $set: { '_.starts': { $cond: [has('$limits.rate'), byRate, '$_.passed'] } } },
    { $set: { '_.rate': { $cond: [has('$limits.rate'), granted, { next: 0, starts: [] }] } } },
  ];
}

const isEnd = { $eq: ['$$one.end', '$_.end'] };

/** Step 6: all of it as the next state of the scope. */
function stored(life: string, { seq, hold, withinMs }: ScopeAsk): Document[] {
  const name = literal(life);
  const until = { $add: ['$_.now', withinMs] };
  const holder = {
    life: name,
    seq,
    held: '$_.held',
    claimsUntil: { $max: [{ $ifNull: ['$_.mine.claimsUntil', 0] }, until] },
    gone: false,
    last: {
      at: '$_.now',
      starts: '$_.starts',
      notAfter: until,
      countedAs: { $cond: [has('$limits.rate'), '$_.end', 0] },
      trial: '$_.trial',
    },
  };
  const others = filtered('$_.holders', { $ne: ['$$one.life', name] });
  const byBreaker = { $lt: ['$_.passed', '$_.wanted'] };
  const isRefused = {
    $or: [{ $lt: ['$_.starts', '$_.passed'] }, and(not(byBreaker), { $lt: ['$_.held', hold] })],
  };
  const unmarked = {
    $cond: [{ $eq: ['$contended.by', name] }, literal({ by: '', until: 0 }), '$contended'],
  };
  return [
    { $set: { '_.trial': and('$_.tries', { $gt: ['$_.starts', 0] }) } },
    {
      $set: {
        '_.after': {
          holders: { $concatArrays: [others, [holder]] },
          rate: '$_.rate',
          failures: '$_.failures',
          breaker: {
            $cond: ['$_.trial', { state: 'trial', until: 0, by: name }, '$_.told'],
          },
          contended: {
            $cond: [isRefused, { by: name, until: { $add: ['$_.now', WAITING_MS] } }, unmarked],
          },
        },
      },
    },
  ];
}

const ended: Document[] = [
  {
    $set: {
      answer: {
        kind: '$_.kind',
        now: '$_.now',
        had: '$_.had',
        contended: '$contended',
        starts: '$_.starts',
        passed: '$_.passed',
        trial: '$_.trial',
        breaker: '$_.told',
        was: '$_.breaker',
      },
    },
  },
  {
    $replaceWith: {
      $cond: [{ $eq: ['$_.kind', 'granted'] }, { $mergeObjects: ['$$ROOT', '$_.after'] }, '$$ROOT'],
    },
  },
  { $unset: '_' },
];

/**
 * One ask of one life as an update: the transition of `LimitStore.exchange`, by the server's time of the write. The
 * numbers of its steps are those there.
 */
export const exchangePipeline = (life: string, ask: ScopeAsk): Document[] => [
  ...asked(life, ask),
  forgotten,
  unusedBack(ask),
  ...outcomes(life, ask),
  ...permitted(ask),
  ...rated(ask),
  ...stored(life, ask),
  ...ended,
];

/** The life never claims again: what it may still have on its way counts to its end. */
export function dropPipeline(life: string): Document[] {
  const isMine = { $eq: ['$$one.life', literal(life)] };
  const isOver = { $lte: ['$$one.claimsUntil', NOW] };
  const tries = and({ $eq: ['$breaker.state', 'trial'] }, { $eq: ['$breaker.by', literal(life)] });
  const left = filtered('$holders', not(and(isMine, isOver)));
  return [
    {
      $set: {
        holders: {
          $map: {
            input: left,
            as: 'one',
            in: { $mergeObjects: ['$$one', { gone: { $or: ['$$one.gone', isMine] } }] },
          },
        },
        breaker: { $cond: [tries, openUntil(NOW), '$breaker'] },
      },
    },
  ];
}
