import { show } from '../../core/options.js';
import { shellArgument } from '../../core/text/shell.js';
import { fine, skipped, warning, type Verdict } from '../../store/inspect.js';
import { isKeyedScope, type Store } from '../../store/port.js';
import { limitsText, limitTitle } from './words.js';
import { limitStates, type LimitState } from './manager.js';

/** A change of an operator that is older than this was probably meant for an hour that is long over. */
const MOST_SET_MS = 7 * 86_400_000;
const DAY_MS = 86_400_000;

/** Finds limits that services define differently, changes that were left behind, and producers that give no key. */
export async function judgeLimits(store: Store): Promise<Verdict | readonly Verdict[]> {
  if (store.limits === undefined) return skipped(`the ${store.kind} store has no limits`);
  const limits = await limitStates(store);
  if (limits.length === 0) return skipped('none is defined');
  const now = store.clock.now();
  const keyless = await Promise.all(limits.map((state) => judgeKeys(store, state)));
  const found = [
    ...limits.flatMap((state) => [...judgeCode(state), ...judgeChange(state, now)]),
    ...keyless.flat(),
  ];
  return found.length > 0
    ? found
    : fine(`${String(limits.length)} defined, each in the same way by all instances`);
}

const titled = ({ kind, name }: LimitState): string => limitTitle({ kind, name: show(name) });

function judgeCode(state: LimitState): readonly Verdict[] {
  const { limits, code = limits, differs } = state;
  if (differs === undefined) return [];
  return [
    warning(
      `live instances define the ${titled(state)} differently: ${limitsText(code)} holds, and ${differs.by} has ` +
        `${limitsText(differs.limits)}. The latest start wins`,
      'finish the deployment; if two services have this limit, give both the same definition, such as from a shared module',
    ),
  ];
}

function judgeChange(state: LimitState, now: number): readonly Verdict[] {
  const { kind, name, limits, code = {}, setAt } = state;
  if (setAt === undefined || now - setAt.getTime() < MOST_SET_MS) return [];
  const days = String(Math.floor((now - setAt.getTime()) / DAY_MS));
  return [
    warning(
      `the ${titled(state)} was changed by hand ${days} days ago: ${limitsText(limits)}; the code says ${limitsText(code)}`,
      `if it is still right, write it into the code; then: tidemill limits reset ${kind === 'job' || kind === 'shared' ? '' : `--kind ${kind} `}${shellArgument(name)}`,
    ),
  ];
}

/** Work without a key shares one place, as if it were of one customer. */
async function judgeKeys(
  { limits: store }: Store,
  { kind, name, limits }: LimitState,
): Promise<readonly Verdict[]> {
  const { perKey } = limits;
  const scope = { kind, name };
  if (store === undefined || !isKeyedScope(scope) || perKey === undefined) return [];
  const [use] = await store.keys(scope, perKey, ['']);
  const count = (use?.due ?? 0) + (use?.running ?? 0);
  if (count === 0) return [];
  if (kind === 'task')
    return [
      warning(
        `${String(count)} due or running tasks of ${show(name)} have no key, so they share the limits and the turns of one key`,
        `let limits.perKey.key name a text or a number of at most 1,024 characters that every document has; tasks that were planned before it get their key by: tidemill reconcile ${shellArgument(name)}`,
      ),
    ];
  return [
    warning(
      `${String(count)} due or running jobs of ${show(name)} have no key, so they share the limits and the turns of one key`,
      `import the definition of ${show(name)} where these jobs are enqueued, or pass a key: enqueue(${show(name)}, data, { key })`,
    ),
  ];
}
