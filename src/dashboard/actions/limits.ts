/** Changes of limits. The audit entry has the limits before and after. */
import type { LimitChanges, LimitState, LimitTarget } from '../../index.js';
import { limitsText, limitTitle } from '../../mill/tools.js';
import type { ActAnswer, Action, LimitKind } from '../contract.js';
import type { Body } from '../http/body.js';
import { badRequest, conflict } from '../http/errors.js';
import type { RequestContext } from '../request-context.js';
import { actedWith } from './acted.js';

const KINDS: readonly LimitKind[] = ['job', 'task', 'documents', 'shared'];

interface Target {
  readonly kind: LimitKind;
  readonly name: string;
}

function targetOf(context: RequestContext, body: Body): Target {
  const kind = KINDS.find((one) => one === body.value('kind'));
  if (kind === undefined) throw badRequest(`"kind" must be one of ${KINDS.join(', ')}.`);
  const name = body.text('name');
  if (context.redactor.hidesIn(name)) throw badRequest('This name is hidden, so it cannot be changed here.');
  return { kind, name };
}

/** What an action did to a limit. */
interface Changed extends ActAnswer {
  readonly after: unknown;
}

type Change = (context: RequestContext, target: LimitTarget, body: Body) => Promise<Changed>;

const stateOf = ({ limits }: LimitState, outcome: string, message: string): Changed => ({
  outcome: `${outcome}: ${limitsText(limits)}`,
  message,
  after: limits,
});

const turning =
  (to: 'open' | 'closed'): Change =>
  async ({ mill }, target) => {
    const state = await mill.limits.breaker(target, to);
    return to === 'open'
      ? {
          outcome: 'opened',
          message: 'The breaker is open: nothing starts until its pause is over.',
          after: state.breaker,
        }
      : { outcome: 'closed', message: 'The breaker is closed: work starts again.', after: state.breaker };
  };

const CHANGES: Readonly<Partial<Record<Action, Change>>> = {
  'set-limit': async ({ mill }, target, body) =>
    stateOf(
      await mill.limits.set(target, body.value('changes') as LimitChanges),
      'set',
      'The limit is changed. It holds on all instances within 2.5 seconds.',
    ),
  'reset-limit': async ({ mill }, target) =>
    stateOf(await mill.limits.reset(target), 'reset', 'The values of the code hold again.'),
  'open-breaker': turning('open'),
  'close-breaker': turning('closed'),
};

export async function actOnLimit(context: RequestContext, body: Body): Promise<ActAnswer> {
  const action = body.action();
  body.only(['action', 'kind', 'name', ...(action === 'set-limit' ? ['changes'] : [])]);
  const change = CHANGES[action];
  if (change === undefined) throw badRequest(`Limits have no action "${action}".`);
  const target = targetOf(context, body);
  const state = await context.mill.limits.get(target);
  if (action.endsWith('breaker') && state?.breaker === undefined)
    throw conflict('This limit has no breaker.');
  const before = action.endsWith('breaker') ? state?.breaker : (state?.limits ?? {});
  const details = { before, ...(body.has('changes') ? { changes: body.value('changes') } : {}) };
  return actedWith(context, { action, target: limitTitle(target), details }, async () => {
    const { after, ...answer } = await change(context, target, body);
    return { answer, outcome: answer.outcome, details: { before, after } };
  });
}
