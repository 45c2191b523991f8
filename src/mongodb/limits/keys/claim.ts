import type { AnyBulkWriteOperation, Document } from 'mongodb';
import { fairShare } from '../../../core/batches/fair-share.js';
import {
  isPausedIn,
  type ClaimAnswer,
  type ClaimRequest,
  type ClusterBrief,
  type KeyRule,
  type NameLimit,
} from '../../../store/port.js';
import { grantStarts, sliceMs, spacingMs, type RateState } from '../../../time/rate.js';
import { literal, type GlobalDocument, type Mongo } from '../../context.js';
import { sliceOf, windowOf } from '../../slices.js';
import { hash } from '../../jobs/document.js';
import {
  CLAIM_MS,
  markKeys,
  mostOf,
  placed,
  ruleText,
  SURE_MS,
  TAKE_MS,
  type KeyDocument,
} from './document.js';
import { freeKeys } from './free.js';
import { checkPermits } from './permits.js';
import { readKeys, type KeysRead, type OfferedKey } from './read.js';
import { changeRule } from './repair.js';
import type { ClaimableWork, KeyedWork, TakenWork } from './work.js';

/** What a claim took of one name, as it is stored. */
export interface KeyedAnswer<R> {
  readonly rows: readonly R[];
  readonly answer: Omit<ClaimAnswer, 'jobs'>;
}

/** How many keys of each name were offered last: the more there are, the fewer jobs of each are read. */
export type Turns = Map<string, Offered>;

interface Offered {
  /** How many keys. */
  readonly count: number;
  /** How many to look at next time, if that is more than usual: this claim met blocked keys only. */
  readonly next: number;
}

/** Many keys at their limit are passed in few claims, each of which looks at more of them. */
const WIDER = 4;
const MOST_KEYS = 500;

interface Named<R> {
  readonly work: ClaimableWork<R>;
  readonly limit: NameLimit;
}

/** A name in one claim. */
interface Turn<R = unknown> extends Named<R> {
  readonly rule: KeyRule;
  readonly request: ClaimRequest;
  /** The server's time of the read. All that is granted happens from then until `until`, by the write of the jobs. */
  readonly now: number;
  readonly until: Date;
  readonly each: number;
}

/** What this claim wants of a key: so many of its first jobs; 0 only corrects when to look again. */
interface Wish {
  readonly key: OfferedKey;
  readonly take: number;
}

/** What a key becomes by a wish. */
interface NextKey {
  readonly from: Date | null;
  readonly open: Date;
  readonly rate: RateState;
  readonly isFull: boolean;
  /** Due jobs remain. */
  readonly isDue: boolean;
}

/**
 * Claims jobs of a name whose keys have limits and take turns. In this order:
 *
 * 1. Reads the keys that are offered, each with its first jobs, and when those that run out are due again.
 * 2. Reserves: writes a permit for each job that it will take, in one write per key, only if the key is what was read.
 * 3. Takes these jobs, before the permits' end, and reads them.
 * 4. Gives back what it did not take.
 *
 * A crash after any of these writes leaves permits without a running job: `checkPermits` finds them.
 */
async function claimKeyed<R>(
  mongo: Mongo,
  turns: Turns,
  request: ClaimRequest,
  { work, limit }: Named<R>,
): Promise<KeyedAnswer<R>> {
  const { name } = work;
  const rule = limit.keys ?? {};
  const each = readEach(turns, name, limit, mostOf(rule));
  const usual = windowOf({ ...limit, max: mostKeys(limit) }) + 1;
  const keys = Math.max(usual, turns.get(name)?.next ?? 0);
  let read = await readKeys(mongo, work, rule, { keys, each });
  const { cluster } = read;
  const now = cluster.now.getTime();
  const until = new Date(Math.min(now + CLAIM_MS, limit.notAfter?.getTime() ?? Infinity));
  if (limit.max === 0 || isPausedIn(cluster.paused, name) || until.getTime() < now) return nothing(cluster);
  if (read.rule !== ruleText(rule) || read.keyless.length > 0) {
    await changeRule(mongo, work, rule, read.rule);
    await adoptKeyless(mongo, work, read.keyless);
    read = await readKeys(mongo, work, rule, { keys, each });
  }
  const turn: Turn<R> = { work, limit, rule, request, now, until, each };
  const plan = planOf(turn, read.offered);
  const granted = await reserve(mongo, turn, plan.wishes);
  const rows = await takeGranted(mongo, turn, granted);
  const isFreed = await checkPermits(mongo, work, read.unchecked);
  const asked = plan.wishes.reduce((sum, { take }) => sum + take, 0);
  const more = plan.isMore || rows.length < asked || isFreed || read.offered.length === keys;
  const next = more && rows.length === 0 ? Math.min(keys * WIDER, MOST_KEYS) : 0;
  turns.set(name, { count: read.offered.length, next });
  const heldUp = more ? undefined : heldUpBy(turn, plan.wishes, read);
  return {
    rows: rows.map(({ row }) => row),
    answer: { asked, more, ...(heldUp === undefined ? {} : { heldUp: new Map([[name, heldUp]]) }), cluster },
  };
}

const nothing = <R>(cluster: ClusterBrief): KeyedAnswer<R> => ({
  rows: [],
  answer: { asked: 0, more: false, cluster },
});

/** How many jobs of each key to read: one more than it may give, so that it is known whether more are due. */
function readEach(offered: Turns, name: string, { max, turns }: NameLimit, most: number): number {
  const fair = turns?.each ?? Math.ceil(max / Math.max(1, offered.get(name)?.count ?? 1));
  return Math.min(most, fair, max) + 1;
}

/** From how many keys a claim may take. */
const mostKeys = ({ max, turns }: NameLimit): number => Math.min(max, turns?.most ?? max);

/** Work that was written without a key, such as by a producer that knows the name only, counts as that of the key ''. */
async function adoptKeyless(mongo: Mongo, work: KeyedWork, ids: readonly unknown[]): Promise<void> {
  if (ids.length === 0) return;
  await work.collection.updateMany(
    { _id: { $in: [...ids] as never[] }, status: 'pending', limitKey: null },
    { $set: { limitKey: '' } },
  );
  await markKeys(mongo, [{ name: work.owner, key: '', from: '$$NOW' }]);
}

interface Plan {
  readonly wishes: readonly Wish[];
  /** Others of these keys could run as well. */
  readonly isMore: boolean;
}

function planOf(turn: Turn, offered: readonly OfferedKey[]): Plan {
  const offers = new Map(offered.map((key) => [key, offerOf(turn, key)]));
  const able = offered.filter((key) => (offers.get(key) ?? 0) > 0);
  const own = new Set(sliceOf(able, { ...turn.limit, max: able.length }, ({ _id }) => hash(_id)));
  const byId = new Map([...own].map((key) => [key._id, offers.get(key) ?? 0]));
  const shares = sharesOf(turn.limit, byId);
  const wishes = offered.flatMap((key): Wish[] => {
    const take = shares.get(key._id) ?? 0;
    return take > 0 || offers.get(key) === 0 ? [{ key, take }] : [];
  });
  const isMore = able.some((key) => {
    const take = shares.get(key._id) ?? 0;
    const after = nextOf(turn, { key, take });
    return take === 0 || (after.isDue && !after.isFull && after.open.getTime() <= turn.now);
  });
  return { wishes, isMore };
}

/** How many jobs each key gives: its part of the whole, or what is due of it, from the first keys on. */
function sharesOf(
  { max, turns }: NameLimit,
  offers: ReadonlyMap<string, number>,
): ReadonlyMap<string, number> {
  if (turns === undefined) return fairShare(offers, max);
  const shares = new Map<string, number>();
  let left = max;
  for (const [key, offer] of [...offers].slice(0, turns.most)) {
    shares.set(key, Math.min(offer, turns.each, left));
    left -= shares.get(key) ?? 0;
  }
  return shares;
}

/** How many of the jobs that were read may start by the rule. */
function offerOf({ rule, now, until, each }: Turn, { ids, dues, permits, rate }: OfferedKey): number {
  const due = dues.findIndex((at) => at.getTime() > now);
  // The last one that was read only tells that more are due.
  const read = Math.min(due === -1 ? dues.length : due, ids.length === each ? each - 1 : each);
  const room = Math.max(0, Math.min(read, mostOf(rule) - permits.length));
  if (rule.rate === undefined || room === 0) return room;
  return grantStarts(rate, rule.rate, { wanted: room, now, withinMs: until.getTime() - now }).granted;
}

const holds = ({ order, whileRetrying }: KeyRule): boolean => order !== undefined && whileRetrying !== 'pass';

function nextOf({ rule, now, until }: Turn, { key, take }: Wish): NextKey {
  const rest = key.dues.slice(take);
  // A job that holds its key hides those behind it.
  const times = [
    ...(holds(rule) ? rest.slice(0, 1) : rest),
    ...(key.next === undefined ? [] : [key.next]),
  ].map((at) => at.getTime());
  const withinMs = until.getTime() - now;
  const rated = rule.rate && grantStarts(key.rate, rule.rate, { wanted: take, now, withinMs });
  const served = take > 0 ? now : key.open.getTime();
  return {
    from: times.length === 0 ? null : new Date(Math.min(...times)),
    open: new Date(Math.max(served, rated?.freeAt ?? 0)),
    rate: rated?.state ?? key.rate,
    isFull: key.permits.length + take >= mostOf(rule),
    isDue: (holds(rule) ? rest.slice(0, 1) : rest).some((at) => at.getTime() <= now),
  };
}

/** Writes what a key becomes. Its permits may have become fewer since it was read, never more. */
function reservation(turn: Turn, wish: Wish): AnyBulkWriteOperation<GlobalDocument> {
  const { key, take } = wish;
  const { token } = turn.request;
  const { from, open, rate } = nextOf(turn, wish);
  const most = mostOf(turn.rule);
  const permits = key.ids.slice(0, take).map((job) => ({ token, job, until: turn.until }));
  const isHeld = take === 0 && (key.dues[0]?.getTime() ?? 0) > turn.now;
  const update: Document[] = [
    {
      $set: {
        rev: { $add: ['$rev', 1] },
        last: literal(token),
        // A job that was marked since the read may be earlier than what was read.
        from: { $cond: [{ $eq: ['$marks', key.marks] }, from, { $min: ['$from', from] }] },
        open,
        waits: isHeld,
        rate: literal(rate),
        pace: paceOf(turn.rule),
        countsUntil: countsUntil(turn.rule, rate),
        ...(most === Infinity || take === 0
          ? {}
          : { permits: { $concatArrays: ['$permits', literal(permits)] } }),
        check: new Date(turn.until.getTime() + SURE_MS),
      },
    },
    { $set: { full: most === Infinity ? false : { $gte: [{ $size: '$permits' }, most] } } },
    placed,
  ];
  return { updateOne: { filter: { _id: key._id, rev: key.rev }, update } };
}

const paceOf = ({ rate }: KeyRule): KeyDocument['pace'] =>
  rate === undefined ? null : { per: rate.perMs, spacing: spacingMs(rate), slice: sliceMs(rate) };

const countsUntil = ({ rate: rule }: KeyRule, { starts }: RateState): Date | null => {
  const last = starts.at(-1);
  return rule === undefined || last === undefined ? null : new Date(last.end + rule.perMs);
};

/** Returns the wishes that were granted. Another claim may have been faster at some keys. */
async function reserve(mongo: Mongo, turn: Turn, wishes: readonly Wish[]): Promise<readonly Wish[]> {
  if (wishes.length === 0) return [];
  const operations = wishes.map((wish) => reservation(turn, wish));
  const { matchedCount } = await mongo.globals.bulkWrite(operations, { ordered: false });
  const taking = wishes.filter(({ take }) => take > 0);
  if (matchedCount === wishes.length || taking.length === 0) return taking;
  const rows = await mongo.globals
    .find({ _id: { $in: taking.map(({ key }) => key._id) }, last: turn.request.token })
    .project<{ _id: string }>({ _id: 1 })
    .toArray();
  const won = new Set(rows.map(({ _id }) => _id));
  return taking.filter(({ key }) => won.has(key._id));
}

async function takeGranted<R>(
  mongo: Mongo,
  turn: Turn<R>,
  granted: readonly Wish[],
): Promise<readonly TakenWork<R>[]> {
  const { work } = turn;
  const picked = granted.flatMap(({ key, take }) =>
    key.ids.slice(0, take).map((id) => ({ id, key: key.key })),
  );
  if (picked.length === 0) return [];
  const ids = picked.map(({ id }) => id);
  const ofKey = {
    $arrayElemAt: [literal(picked.map(({ key }) => key)), { $indexOfArray: [literal(ids), '$_id'] }],
  };
  const also = {
    $and: [
      { $lte: ['$$NOW', turn.until] },
      { $eq: ['$limitKey', ofKey] },
      { $eq: [work.nameField, literal(work.name)] },
    ],
  };
  const rows = await work.take(ids, turn.request, { also, maxTimeMS: TAKE_MS });
  const taken = new Map(rows.map((row) => [work.idText(row.id), row]));
  const missed = picked.filter(({ id }) => !taken.has(work.idText(id)));
  await countRates(mongo, turn, granted, taken);
  const { token } = turn.request;
  await freeKeys(
    mongo,
    missed.map(({ id, key }) => ({
      name: work.owner,
      key,
      lease: { key: id, id: work.idText(id), token, lockedAt: null },
      pendingFrom: '$$NOW' as const,
    })),
  );
  return rows;
}

/**
 * Counts the starts that happened, at the time at which they did: the reservation had to count all of them, until its
 * end. If another claim has written to the key by now, it stays as it was counted, which is on the safe side.
 */
async function countRates(
  mongo: Mongo,
  { work, rule, now }: Turn,
  granted: readonly Wish[],
  taken: ReadonlyMap<string, TakenWork<unknown>>,
): Promise<void> {
  const { rate } = rule;
  if (rate === undefined) return;
  const operations = granted.map(({ key, take }): AnyBulkWriteOperation<GlobalDocument> => {
    const rows = key.ids.slice(0, take).flatMap((id) => taken.get(work.idText(id)) ?? []);
    const last = Math.max(now, ...rows.map((row) => row.lockedAt.getTime()));
    const { state, freeAt } = grantStarts(key.rate, rate, { wanted: rows.length, now, withinMs: last - now });
    const fields = { rate: literal(state), countsUntil: countsUntil(rule, state) };
    const open = new Date(Math.max(now, freeAt));
    const update = [{ $set: { ...fields, open, rev: { $add: ['$rev', 1] } } }, placed];
    return { updateOne: { filter: { _id: key._id, rev: key.rev + 1 }, update } };
  });
  if (operations.length > 0) await mongo.globals.bulkWrite(operations, { ordered: false });
}

/** When the first of the jobs that are held up can run by itself; null if only after an end. Undefined: none is. */
function heldUpBy(turn: Turn, wishes: readonly Wish[], read: KeysRead): Date | null | undefined {
  const waits: (Date | null)[] = wishes.flatMap((wish) => {
    const { isDue, isFull, open, from } = nextOf(turn, wish);
    const isHeld = wish.take === 0 && (wish.key.dues[0]?.getTime() ?? 0) > turn.now;
    if (isHeld) return [from];
    if (!isDue) return [];
    if (isFull) return [null];
    return open.getTime() > turn.now ? [open] : [];
  });
  if (read.isBlocked) waits.push(null);
  if (read.next?.waits === true) waits.push(read.next.at);
  if (waits.length === 0) return undefined;
  const times = waits.flatMap((at) => at?.getTime() ?? []);
  return times.length === 0 ? null : new Date(Math.min(...times));
}

/** Each name with keys gets its share of the whole; the names without share what is left. */
export async function claimEachKeyed<R>(
  mongo: Mongo,
  turns: Turns,
  request: ClaimRequest,
  keyed: readonly Named<R>[],
): Promise<KeyedAnswer<R>[]> {
  const offers = new Map([...request.limits].map(([name, { max }]) => [name, max]));
  const shares = fairShare(offers, request.total);
  const claims = await Promise.allSettled(
    keyed.map(({ work, limit }) => {
      const max = Math.min(limit.max, shares.get(work.name) ?? 0);
      return claimKeyed(mongo, turns, request, { work, limit: { ...limit, max } });
    }),
  );
  return claims.map((claimed) => {
    if (claimed.status === 'rejected') throw claimed.reason;
    return claimed.value;
  });
}

/** The names of a request that have limits per key. */
export const keyedOf = ({ limits }: ClaimRequest): readonly (readonly [string, NameLimit])[] =>
  [...limits].filter(([, { keys }]) => keys !== undefined);

/** What is left for the names without limits per key, after others have taken some. */
export function withoutKeyed(request: ClaimRequest, taken: number): ClaimRequest {
  const limits = [...request.limits].filter(([, { keys }]) => keys === undefined);
  return { ...request, limits: new Map(limits), total: request.total - taken };
}

/** Several answers as one; there is at least one. */
export function together(answers: readonly Omit<ClaimAnswer, 'jobs'>[]): Omit<ClaimAnswer, 'jobs'> {
  const [first, ...others] = answers;
  if (first === undefined) throw new Error('a claim of no name');
  if (others.length === 0) return first;
  const heldUp = new Map(answers.flatMap((answer) => [...(answer.heldUp ?? [])]));
  return {
    asked: answers.reduce((sum, { asked }) => sum + asked, 0),
    more: answers.some(({ more }) => more),
    ...(heldUp.size === 0 ? {} : { heldUp }),
    cluster: (answers.at(-1) ?? first).cluster,
  };
}
