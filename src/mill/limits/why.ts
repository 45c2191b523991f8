import { show } from '../../core/options.js';
import type { KeyRule, LimitStore, ScopeKind, ScopeRecord } from '../../store/port.js';

/** A reason why a job, a reactive task or a document is not running. */
export interface Reason {
  readonly code:
    | 'paused'
    | 'not-due'
    | 'no-instance'
    | 'limit-reached'
    | 'limit'
    | 'rate'
    | 'key'
    | 'order'
    | 'breaker'
    | 'throttled'
    | 'leased'
    | 'waiting';
  /** A full sentence, for people. */
  readonly text: string;
  /** When the reason ends by itself, if that is known. */
  readonly until?: Date;
}

interface LimitedWork {
  readonly kind: Exclude<ScopeKind, 'shared'>;
  readonly id: string;
  readonly name: string;
  readonly limitKey?: string;
}

/** What the limits of due work hold it up for. */
export async function limitReasons(limits: LimitStore, work: LimitedWork): Promise<readonly Reason[]> {
  const { now, scopes } = await limits.read([{ kind: work.kind, name: work.name }]);
  const [own] = scopes;
  if (own === undefined) return [];
  const names = own.limits.shared ?? [];
  const shared =
    names.length === 0 ? [] : (await limits.read(names.map((name) => ({ kind: 'shared', name })))).scopes;
  const rule = own.limits.perKey;
  const keys = rule === undefined ? [] : await keyReasons(limits, work, rule, now);
  return [...[own, ...shared].flatMap((record) => scopeReasons(record, now)), ...keys];
}

function scopeReasons({ scope, limits, holders, rateFreeAt, breaker }: ScopeRecord, now: Date): Reason[] {
  const what =
    scope.kind === 'shared' ? `the shared limit ${show(scope.name)}` : `the name ${show(scope.name)}`;
  const held = holders.reduce((sum, one) => sum + one.held, 0);
  const reasons: Reason[] = [];
  if (limits.breaker !== undefined && breaker.state !== 'closed')
    reasons.push(
      ending(
        'breaker',
        `It waits for the breaker of ${what}, which is ${breaker.state === 'open' ? 'open' : 'trying one start'}`,
        breaker.until,
        now,
      ),
    );
  if (limits.concurrency !== undefined && held >= limits.concurrency)
    reasons.push(
      ending(
        'limit',
        `It waits for ${what}, of which ${String(held)} run, the most in the cluster`,
        undefined,
        now,
      ),
    );
  if (rateFreeAt !== undefined)
    reasons.push(ending('rate', `It waits for the rate of ${what}`, rateFreeAt, now));
  return reasons;
}

async function keyReasons(
  limits: LimitStore,
  { kind, id, name, limitKey = '' }: LimitedWork,
  rule: KeyRule,
  now: Date,
): Promise<readonly Reason[]> {
  if (kind === 'documents') return [];
  const [use] = await limits.keys({ kind, name }, rule, [limitKey]);
  if (use === undefined) return [];
  const key = `key ${show(limitKey)}`;
  const reasons: Reason[] = [];
  if (rule.order !== undefined && use.head !== undefined && use.head !== id)
    reasons.push(
      ending(
        'order',
        `It waits for its turn in the order of ${key}: job ${use.head} comes first`,
        use.headAt,
        now,
      ),
    );
  const most = rule.order === undefined ? rule.concurrency : 1;
  if (most !== undefined && use.running >= most)
    reasons.push(
      ending(
        'key',
        `It waits for ${key}, of which ${String(use.running)} run, the most at once`,
        undefined,
        now,
      ),
    );
  if (use.rateFreeAt !== undefined)
    reasons.push(ending('rate', `It waits for the rate of ${key}`, use.rateFreeAt, now));
  return reasons;
}

/** A reason in words, with how long it lasts if that is known. */
function ending(code: Reason['code'], text: string, until: Date | undefined, now: Date): Reason {
  if (until === undefined) return { code, text: `${text}.` };
  const seconds = Math.max(0, until.getTime() - now.getTime()) / 1_000;
  return { code, text: `${text}, free in ${seconds.toFixed(1)} s.`, until };
}
