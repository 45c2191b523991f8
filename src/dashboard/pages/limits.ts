import type { LimitState, RateLimit, ScopeLimits } from '../../index.js';
import { durationText, limitsText } from '../../mill/tools.js';
import type { Action, KeyRow, LimitRate, LimitRow, LimitsPage, LimitValues } from '../contract.js';
import { checkParameters } from '../http/parameters.js';
import { REDACTED } from '../redaction/redact-text.js';
import { iso, may, offered, present, type RequestContext } from '../request-context.js';

/** How many keys of a limit are listed. */
const KEYS = 5;
/** Keys are read for each limit, so less often than the rest. */
const KEYS_MS = 5_000;

/** A key may name a customer, so it is data. */
async function keysOf(context: RequestContext, { kind, name }: LimitState): Promise<readonly KeyRow[]> {
  const { mill, cache, redactor } = context;
  const keys = await cache.get(
    `keys of ${kind} ${name}`,
    () => mill.limits.keys({ kind, name }, { limit: KEYS }),
    KEYS_MS,
  );
  const shown = (key: string): string => (may(context, 'payload') ? redactor.text(key) : REDACTED);
  return keys.map(({ key, running, due, dueSince, rateFreeAt }) => ({
    key: shown(key),
    running,
    due,
    dueSince: iso(dueSince),
    freeAt: iso(rateFreeAt),
  }));
}

const rateOf = ({ limit, perMs, burst }: RateLimit): LimitRate => ({
  limit,
  per: durationText(perMs),
  burst,
});

const numbersOf = ({
  concurrency,
  rate,
}: Pick<ScopeLimits, 'concurrency' | 'rate'>): Pick<LimitValues, 'concurrency' | 'rate'> =>
  present({ concurrency, rate: rate && rateOf(rate) });

/** The values as a form has them. */
function valuesOf({ perKey, breaker, ...own }: ScopeLimits): LimitValues {
  return {
    ...numbersOf(own),
    ...present({
      breaker: breaker && {
        failures: breaker.failures,
        within: durationText(breaker.withinMs),
        pause: durationText(breaker.pauseMs),
      },
      perKey: perKey && {
        // An order has a concurrency of 1, which is not to be changed.
        ...numbersOf(perKey.order === undefined ? perKey : present({ rate: perKey.rate })),
        ordered: perKey.order !== undefined,
      },
    }),
  };
}

function actionsOf({ source, breaker }: LimitState): readonly Action[] {
  const turn = breaker?.state === 'closed' ? 'open-breaker' : 'close-breaker';
  return [
    'set-limit',
    ...(source === 'set' ? (['reset-limit'] as const) : []),
    ...(breaker === undefined ? [] : ([turn] as const)),
  ];
}

async function toRow(context: RequestContext, state: LimitState): Promise<LimitRow> {
  const { redactor } = context;
  const { kind, name, limits, use, source, code = {}, setAt, differs, breaker } = state;
  const shown = redactor.text(name);
  const textOf = (values: ScopeLimits): string => redactor.text(limitsText(values));
  const hasKeys = limits.perKey !== undefined && use.waiting > 0;
  return {
    kind,
    name: shown,
    limits: valuesOf(limits),
    text: textOf(limits),
    use,
    // An action names the limit, which a hidden name cannot.
    actions: shown === name ? offered(context, actionsOf(state)) : [],
    ...present({
      set: source === 'code' ? undefined : { at: iso(setAt), code: textOf(code) },
      differs: differs && { text: textOf(differs.limits), by: differs.by },
      breaker: breaker && { state: breaker.state, until: iso(breaker.until) },
      keys: hasKeys ? await keysOf(context, state) : undefined,
    }),
  };
}

/** Names of jobs without a limit, which only an operator needs. */
async function unlimitedOf(
  context: RequestContext,
  limited: readonly LimitState[],
): Promise<readonly string[]> {
  if (!may(context, 'act')) return [];
  const instances = await context.mill.instances();
  const names = new Set(instances.filter(({ alive }) => alive).flatMap((one) => one.names));
  for (const { kind, name } of limited) if (kind === 'job') names.delete(name);
  return [...names].filter((name) => !context.redactor.hidesIn(name)).sort();
}

export async function limitsPage(context: RequestContext, query: URLSearchParams): Promise<LimitsPage> {
  checkParameters(query, []);
  const limits = await context.mill.limits.list();
  const [items, unlimited] = await Promise.all([
    Promise.all(limits.map((state) => toRow(context, state))),
    unlimitedOf(context, limits),
  ]);
  return { items, unlimited };
}
