import type { AnyBulkWriteOperation, Document } from 'mongodb';
import type { RateState } from '../../../time/rate.js';
import type { KeyRule } from '../../../store/port.js';
import { literal, type GlobalDocument, type Mongo } from '../../context.js';
import { isDuplicate } from '../../errors.js';

/** Work that was promised to a token: it may run, or be about to. */
export interface PermitDocument {
  readonly token: string;
  readonly job: unknown;
  /** The claim takes the work before this time, or not at all: its write says so. */
  readonly until: Date;
}

/**
 * A key of a name, one document of the globals collection. What runs is known from the jobs alone; this document says
 * who may, and when to look.
 *
 * | state | `full` | `at` |
 * |---|---|---|
 * | idle: nothing is pending | false | null |
 * | offered | false | the later of `from` and `open`: a claim looks at the key from then on |
 * | blocked: as many permits as its limit | true | `check`, and null once its permits have been compared with the jobs |
 *
 * mark: idle → offered. Claim: offered → offered, blocked or idle. Free: blocked → offered.
 */
export interface KeyDocument extends GlobalDocument {
  readonly name: KeyOwner;
  readonly key: string;
  readonly full: boolean;
  readonly at: Date | null;
  /** No pending job of the key may run earlier. Null: none is known. */
  readonly from: Date | null;
  /** The later of its last turn and the time at which its rate lets the next job through. */
  readonly open: Date;
  readonly check: Date | null;
  /** Due jobs wait for `at`, not only for their own time. */
  readonly waits?: boolean;
  /** Raised by what gives permits or counts starts: a claim writes only if it is still what it read. */
  readonly rev: number;
  /** Raised by each mark: a claim that saw no jobs must not hide one that was marked meanwhile. */
  readonly marks: number;
  /** Empty if the key has no concurrency. */
  readonly permits: readonly PermitDocument[];
  readonly rate: RateState;
  /** When its rate counts nothing any more. */
  readonly countsUntil: Date | null;
  /** How its rate counts; null or absent: it has none. */
  readonly pace?: { readonly per: number; readonly spacing: number; readonly slice: number } | null;
  /** Starts that were given back while they counted, so that a repeat gives back nothing. */
  readonly returned?: readonly ReturnedStart[];
  /** The token of the work by whose end it was blocked no more. */
  readonly freedBy?: string | null;
  /** The token of the last claim that wrote it. */
  readonly last: string | null;
}

interface ReturnedStart {
  readonly token: string;
  readonly job: unknown;
  /** When it would have counted no more. */
  readonly until: Date;
}

/** Whose key it is: the name of jobs, or an object, which no name is, for a reactive task. */
export type KeyOwner = string | { readonly task: string };

/** A key by its owner. */
export interface KeyRef {
  readonly name: KeyOwner;
  readonly key: string;
}

/** How long a claim may take from its first read to its write of jobs. */
export const CLAIM_MS = 5_000;
/** The server ends that write after so long: it compares the permits' end with the time at which the write began. */
export const TAKE_MS = 10_000;
/** So long after the end of a permit, its job runs or never will. */
export const SURE_MS: number = TAKE_MS + 5_000;
const EPOCH = new Date(0);

export function keyId({ name, key }: KeyRef): string {
  const [kind, text] = typeof name === 'string' ? ['key', name] : ['task-key', name.task];
  return `${kind}:${String(text.length)}:${text}:${key}`;
}

export const ruleId = (name: KeyOwner): string =>
  typeof name === 'string' ? `key-rule:${name}` : `task-key-rule:${name.task}`;

/** A rule as one text: the same for the same rule. */
export const ruleText = ({ order, whileRetrying, concurrency, rate }: KeyRule): string =>
  JSON.stringify([
    order,
    order && (whileRetrying ?? 'hold'),
    concurrency,
    rate?.limit,
    rate?.perMs,
    rate?.burst,
  ]);

export const mostOf = ({ order, concurrency = Infinity }: KeyRule): number =>
  order === undefined ? concurrency : 1;

/** Whether a rule, given as its text, has a concurrency: claims by it write permits. */
export function isLimited(text: string): boolean {
  const [order, , concurrency] = JSON.parse(text) as readonly unknown[];
  return order !== null || concurrency !== null;
}

/** The last stage of every update: where the key stands in the index. */
export const placed: Document = {
  $set: {
    at: {
      $switch: {
        branches: [
          { case: '$full', then: '$check' },
          { case: { $eq: ['$from', null] }, then: null },
        ],
        default: { $max: ['$from', '$open'] },
      },
    },
  },
};

/** Offers a key from a time on, or '$$NOW'. */
export const markPipeline = ({ name, key }: KeyRef, from: Date | '$$NOW'): Document[] => [
  {
    $set: {
      kind: 'key',
      name: literal(name),
      key: literal(key),
      full: { $ifNull: ['$full', false] },
      from: { $ifNull: [{ $min: ['$from', from] }, null] },
      open: { $ifNull: ['$open', EPOCH] },
      check: { $ifNull: ['$check', null] },
      // A document that was deleted and comes again must not have a number that a claim has read.
      rev: { $ifNull: ['$rev', { $toDouble: '$$NOW' }] },
      marks: { $add: [{ $ifNull: ['$marks', 0] }, 1] },
      permits: { $ifNull: ['$permits', []] },
      rate: { $ifNull: ['$rate', literal({ next: 0, starts: [] })] },
      countsUntil: { $ifNull: ['$countsUntil', null] },
      last: { $ifNull: ['$last', null] },
    },
  },
  placed,
];

export interface Mark extends KeyRef {
  readonly from: Date | '$$NOW';
}

export const earlier = (a: Mark['from'], b: Mark['from']): Mark['from'] => {
  if (a === '$$NOW' || b === '$$NOW') return '$$NOW';
  return a < b ? a : b;
};

/** Offers keys to claims, after their jobs were written. */
export async function markKeys(mongo: Mongo, marks: readonly Mark[]): Promise<void> {
  const byId = new Map<string, Mark>();
  for (const mark of marks) {
    const known = byId.get(keyId(mark));
    byId.set(keyId(mark), known === undefined ? mark : { ...mark, from: earlier(known.from, mark.from) });
  }
  if (byId.size === 0) return;
  const operations = [...byId].map(([_id, mark]): AnyBulkWriteOperation<GlobalDocument> => ({
    updateOne: { filter: { _id }, update: markPipeline(mark, mark.from), upsert: true },
  }));
  await writeKeys(mongo, operations);
}

/** Writes that may be repeated. Two first marks of a key may both insert its document; the loser finds it on its second try. */
export async function writeKeys(
  mongo: Mongo,
  operations: readonly AnyBulkWriteOperation<GlobalDocument>[],
): Promise<void> {
  const write = (): Promise<unknown> => mongo.globals.bulkWrite(operations, { ordered: false });
  try {
    await write();
  } catch (error) {
    if (!isDuplicate(error)) throw error;
    await write();
  }
}

/** Takes permits away by job and token, so that a repeat takes nothing from another attempt. A blocked key is offered again. */
export function withoutPermits(
  permits: readonly { readonly token: string | null; readonly job: unknown }[],
): Document[] {
  if (permits.length === 0) return [];
  const isOver = {
    $or: permits.map(({ token, job }) => ({
      $and: [{ $eq: ['$$one.token', literal(token)] }, { $eq: ['$$one.job', literal(job)] }],
    })),
  };
  const left = { $filter: { input: '$permits', as: 'one', cond: { $not: [isOver] } } };
  return [
    { $set: { _had: { $size: '$permits' }, permits: left } },
    { $set: { _frees: { $and: ['$full', { $lt: [{ $size: '$permits' }, '$_had'] }] } } },
    {
      $set: {
        full: { $and: ['$full', { $not: ['$_frees'] }] },
        freedBy: { $cond: ['$_frees', literal(permits[0]?.token ?? null), '$freedBy'] },
      },
    },
    { $unset: ['_had', '_frees'] },
  ];
}

/** A start that did not happen, of a claim that was written at `at`. */
export interface UnusedStart {
  readonly token: string | null;
  readonly job: unknown;
  readonly at: Date;
}

/**
 * Gives starts back to the rate of a key, each once. A start counts to the end of its slice, and no slice that ends
 * between its claim and the latest end of that is counted for longer: the first one of them is given back.
 */
export function withoutStarts(unused: readonly UnusedStart[]): Document[] {
  if (unused.length === 0) return [];
  const at = { $toDouble: '$$this.at' };
  const isSame = { $and: [{ $eq: ['$$one.token', '$$this.token'] }, { $eq: ['$$one.job', '$$this.job'] }] };
  const isOf = {
    $and: [{ $gte: ['$$one.end', at] }, { $lte: ['$$one.end', { $add: [at, CLAIM_MS, '$pace.slice'] }] }],
  };
  const among = (input: unknown, cond: Document): Document => ({ $filter: { input, as: 'one', cond } });
  const until = { $add: ['$$this.at', '$pace.per'] };
  const isCounting = {
    $and: [{ $gt: [until, '$$NOW'] }, { $eq: [{ $size: among('$$value.returned', isSame) }, 0] }],
  };
  const less = {
    $map: {
      input: '$$value.starts',
      as: 'one',
      in: {
        end: '$$one.end',
        count: { $subtract: ['$$one.count', { $cond: [{ $eq: ['$$one.end', '$$found.end'] }, 1, 0] }] },
      },
    },
  };
  const one = { token: '$$this.token', job: '$$this.job', until };
  const returning = {
    $let: {
      vars: { found: { $first: among('$$value.starts', isOf) } },
      in: {
        $cond: [
          { $and: [isCounting, { $ne: [{ $type: '$$found' }, 'missing'] }] },
          {
            next: { $subtract: ['$$value.next', '$pace.spacing'] },
            starts: among(less, { $gt: ['$$one.count', 0] }),
            returned: { $concatArrays: ['$$value.returned', [one]] },
          },
          '$$value',
        ],
      },
    },
  };
  const known = among({ $ifNull: ['$returned', []] }, { $gt: ['$$one.until', '$$NOW'] });
  const given = unused.map(({ token, job, at: time }) => ({
    token: literal(token),
    job: literal(job),
    at: time,
  }));
  return [
    {
      $set: {
        _after: {
          $cond: [
            { $eq: [{ $type: '$pace' }, 'object'] },
            {
              $reduce: {
                input: given,
                initialValue: { next: '$rate.next', starts: '$rate.starts', returned: known },
                in: returning,
              },
            },
            null,
          ],
        },
      },
    },
    {
      $set: {
        rate: { $cond: ['$_after', { next: '$_after.next', starts: '$_after.starts' }, '$rate'] },
        returned: { $cond: ['$_after', '$_after.returned', []] },
        // The next claim computes when the rate lets a job through.
        open: { $cond: ['$_after', { $min: ['$open', '$$NOW'] }, '$open'] },
        rev: { $add: ['$rev', 1] },
      },
    },
    { $unset: '_after' },
  ];
}
