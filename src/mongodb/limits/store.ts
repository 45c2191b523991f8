import type { Document } from 'mongodb';
import {
  type KeyedScope,
  type LimitStore,
  type ScopeAsk,
  type ScopeDefinition,
  type ScopeGrant,
  type ScopeLimits,
  type ScopeRecord,
  type ScopeRef,
} from '../../store/port.js';
import { grantStarts, sliceMs, spacingMs, startsInWindow, toleranceMs } from '../../time/rate.js';
import { send } from '../cluster/messages.js';
import { run, type Mongo } from '../context.js';
import { isDuplicate } from '../errors.js';
import { keyedJobs } from '../jobs/claim/keyed.js';
import { publishedTasks } from '../reactive/keyed.js';
import { repairKeys } from './keys/repair.js';
import { keyUses } from './keys/uses.js';
import type { KeyedWork } from './keys/work.js';
import {
  CLOSED,
  dropPipeline,
  exchangePipeline,
  idOf,
  NOW,
  type AnswerDocument,
  type ScopeDocument,
} from './scope.js';

/** What a grant is made of; the holders of all other lives stay on the server. */
const answerFor = (life: string): Document => ({
  limits: 1,
  rev: 1,
  rate: 1,
  breaker: 1,
  answer: 1,
  holders: { $elemMatch: { life } },
});

/** The parts of a scope that follow from its definition. `pace` is how its rate counts. */
function fieldsOf({ limits, code, set }: ScopeDefinition): Document {
  const { rate } = limits;
  return {
    limits: plain(limits),
    code: JSON.stringify(code ?? null),
    set: JSON.stringify(set ?? null),
    pace:
      rate === undefined
        ? null
        : { slice: sliceMs(rate), spacing: spacingMs(rate), tolerance: toleranceMs(rate) },
  };
}

const plain = (limits: ScopeLimits): ScopeLimits => JSON.parse(JSON.stringify(limits)) as ScopeLimits;

const newScope = (scope: ScopeRef, definition: ScopeDefinition): Document => ({
  _id: idOf(scope),
  kind: 'limit',
  scope: { ...scope },
  ...fieldsOf(definition),
  rev: 1,
  holders: [],
  rate: { next: 0, starts: [] },
  breaker: CLOSED,
  failures: [],
  contended: { by: '', until: 0 },
});

/** The limits of a MongoDB. Each scope is one document of the globals collection, changed by one write per exchange. */
export function limitStore(mongo: () => Mongo, tasksOf: (collection: string) => string): LimitStore {
  const workOf = async ({ kind, name }: KeyedScope): Promise<KeyedWork | undefined> =>
    kind === 'job' ? keyedJobs(mongo(), name) : publishedTasks(mongo(), tasksOf, name);
  const freed = (scopes: readonly ScopeRef[]): Promise<void> =>
    send(mongo(), { kind: 'freed', scopes: scopes.map(({ kind, name }) => [kind, name] as const) });

  const exchangeOne = async (life: string, ask: ScopeAsk): Promise<Exchanged | undefined> => {
    const row = await mongo().globals.findOneAndUpdate(
      { _id: idOf(ask.scope) },
      exchangePipeline(life, ask),
      { returnDocument: 'after', projection: answerFor(life) },
    );
    return row === null ? undefined : answerOf(row as unknown as ScopeDocument, life, ask);
  };

  return {
    exchange: (life, asks) =>
      run('ask for limits', async () => {
        const answers = await settledAll(asks.map((ask) => exchangeOne(life, ask)));
        const free = asks.filter((_ask, at) => answers[at]?.frees === true);
        if (free.length > 0) await freed(free.map(({ scope }) => scope));
        return answers.map((answer) => answer?.grant);
      }),
    read: (refs) =>
      run('read limits', async () => {
        const which = refs === undefined ? {} : { _id: { $in: refs.map(idOf) } };
        const [found] = await mongo()
          .globals.aggregate([
            { $match: { kind: 'limit', ...which } },
            { $facet: { rows: [{ $unset: 'answer' }] } },
            { $project: { rows: 1, now: '$$NOW' } },
          ])
          .toArray();
        const now = (found?.['now'] as Date | undefined) ?? new Date(mongo().clock.now());
        const rows = (found?.['rows'] ?? []) as ScopeDocument[];
        return { now, scopes: rows.map((row) => toRecord(row, now.getTime())) };
      }),
    revision: () =>
      run('read limits', async () => {
        const pipeline = [{ $match: { kind: 'limit' } }, { $group: { _id: null, sum: { $sum: '$rev' } } }];
        const [found] = await mongo().globals.aggregate<{ sum: number }>(pipeline).toArray();
        return found?.sum ?? 0;
      }),
    define: async (scope, definition, ifRev) => {
      const isWritten = await run('define a limit', () => define(mongo(), scope, definition, ifRev));
      if (isWritten) await freed([scope]);
      return isWritten ? 'written' : 'changed';
    },
    drop: (life) =>
      run('drop the limits of a life', async () => {
        const { globals } = mongo();
        const has = {
          kind: 'limit' as const,
          $or: [
            { holders: { $elemMatch: { life, gone: false } } },
            { 'breaker.state': 'trial', 'breaker.by': life },
          ],
        };
        const rows = await globals.find(has, { projection: { scope: 1 } }).toArray();
        if (rows.length === 0) return;
        await globals.updateMany({ _id: { $in: rows.map(({ _id }) => _id) } }, dropPipeline(life));
        await freed(rows.map((row) => row['scope'] as ScopeRef));
      }),
    turnBreaker: async (scope, to) => {
      const open = { state: 'open', until: { $add: [NOW, '$limits.breaker.pauseMs'] }, by: '' };
      const { matchedCount } = await run('turn a breaker', () =>
        mongo().globals.updateOne({ _id: idOf(scope), 'limits.breaker': { $exists: true } }, [
          { $set: { failures: [], breaker: to === 'open' ? open : CLOSED } },
        ]),
      );
      if (matchedCount === 0) return false;
      await freed([scope]);
      return true;
    },
    keys: (scope, rule, which) =>
      run('read keys', async () => {
        const work = await workOf(scope);
        return work === undefined ? [] : keyUses(mongo(), work, rule, which);
      }),
    repairKeys: (scope, rule) =>
      run('repair keys', async () => {
        const work = await workOf(scope);
        return work === undefined ? 0 : repairKeys(mongo(), work, rule);
      }),
  };
}

/** Waits for all of them, so that a caller who repeats meets none that is still on its way. */
async function settledAll<T>(calls: readonly Promise<T>[]): Promise<T[]> {
  const results = await Promise.allSettled(calls);
  return results.map((result) => {
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  });
}

async function define(
  { globals }: Mongo,
  scope: ScopeRef,
  definition: ScopeDefinition,
  ifRev: number | null,
): Promise<boolean> {
  if (ifRev !== null) {
    const update = { $set: fieldsOf(definition), $inc: { rev: 1 } };
    return (await globals.updateOne({ _id: idOf(scope), rev: ifRev }, update)).matchedCount === 1;
  }
  try {
    await globals.insertOne(newScope(scope, definition) as never);
    return true;
  } catch (error) {
    if (isDuplicate(error)) return false;
    throw error;
  }
}

interface Exchanged {
  readonly grant: ScopeGrant | 'stale';
  /** Others may get more now. */
  readonly frees: boolean;
}

function answerOf(row: ScopeDocument, life: string, ask: ScopeAsk): Exchanged {
  const { answer, holders, limits, rev, breaker } = row;
  const [mine] = holders;
  if (answer === undefined || mine === undefined || answer.kind === 'stale')
    return { grant: 'stale', frees: false };
  const isRepeated = answer.kind === 'repeated';
  const isWanted = answer.contended.until > answer.now && (isRepeated || answer.contended.by !== life);
  const { at, notAfter, ...last } = mine.last;
  const grant: ScopeGrant = {
    ...last,
    at: new Date(at),
    notAfter: new Date(notAfter),
    held: mine.held,
    ...(isRepeated ? (mine.held < ask.hold ? { refusedBy: 'concurrency' } : {}) : refusalOf(row, ask)),
    ...(isRepeated ? {} : turnedBy(life, ask, answer)),
    contended: isWanted,
    limits,
    breaker: breaker.state,
    rev,
  };
  if (isRepeated) return { grant, frees: false };
  const gaveBack = mine.held < answer.had || (ask.unused ?? []).length > 0;
  const closed = answer.was.state !== 'closed' && answer.breaker.state === 'closed';
  return { grant, frees: closed || (gaveBack && isWanted) };
}

/** As in src/store/limits/scope.ts. The end of the life's own trial turns the breaker, even if it is open again. */
function turnedBy(
  life: string,
  { trial }: ScopeAsk,
  { was, breaker }: Pick<AnswerDocument, 'was' | 'breaker'>,
): Pick<ScopeGrant, 'turned'> {
  if (breaker.state === 'trial') return {};
  const isTried = was.state === 'trial' && was.by === life && trial !== undefined;
  const isTurned = isTried ? trial !== 'unused' : was.state !== breaker.state;
  return isTurned ? { turned: breaker.state } : {};
}

/** Which rule granted less than was asked for, and until when. */
function refusalOf(
  { answer, holders, limits: { rate }, rate: state }: ScopeDocument,
  { hold, inUse, starts }: ScopeAsk,
): Pick<ScopeGrant, 'refusedBy' | 'until'> {
  const [mine] = holders;
  if (answer === undefined || mine === undefined) return {};
  const { now, passed, breaker } = answer;
  if (rate !== undefined && answer.starts < passed) {
    const { freeAt } = grantStarts(state, rate, { wanted: 0, now, withinMs: 0 });
    return { refusedBy: 'rate', until: new Date(Math.max(freeAt, now)) };
  }
  if (passed < Math.min(starts, mine.held - inUse)) {
    const isOpen = breaker.state === 'open' && breaker.until > now;
    return { refusedBy: 'breaker', ...(isOpen ? { until: new Date(breaker.until) } : {}) };
  }
  return mine.held < hold ? { refusedBy: 'concurrency' } : {};
}

function toRecord(row: ScopeDocument, now: number): ScopeRecord {
  const { limits, scope, rev, rate: state, contended } = row;
  const { rate } = limits;
  const freeAt = rate === undefined ? now : grantStarts(state, rate, { wanted: 0, now, withinMs: 0 }).freeAt;
  return {
    scope,
    limits,
    code: JSON.parse(row.code),
    set: JSON.parse(row.set),
    rev,
    holders: row.holders
      .filter(({ gone, claimsUntil }) => !gone || claimsUntil > now)
      .map(({ life, seq, held, claimsUntil, gone }) => ({
        life,
        seq,
        held,
        claimsUntil: new Date(claimsUntil),
        gone,
      })),
    startsInWindow: rate === undefined ? 0 : startsInWindow(state, rate, now),
    ...(freeAt > now ? { rateFreeAt: new Date(freeAt) } : {}),
    breaker: breakerOf(row),
    contended: contended.until > now,
  };
}

const breakerOf = ({ breaker: { state, until, by } }: ScopeDocument): ScopeRecord['breaker'] => ({
  state,
  ...(state === 'open' ? { until: new Date(until) } : {}),
  ...(state === 'trial' ? { by } : {}),
});
