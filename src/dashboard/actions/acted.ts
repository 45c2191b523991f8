import { audited } from '../../mill/tools.js';
import type { RequestContext } from '../request-context.js';
import type { ActAnswer } from '../contract.js';
import { problemOf } from '../http/errors.js';

export interface AuditedAction {
  readonly action: string;
  /** What everybody may read who looks at the log. */
  readonly target: string;
  /** What it was exactly, where that is hidden from some. Not shown on the page. */
  readonly details?: unknown;
}

/** In the log first: what is not there must not have been done. */
export const acted = <T extends Pick<ActAnswer, 'outcome'>>(
  { mill, viewer, settings }: RequestContext,
  { action, target, details }: AuditedAction,
  work: () => Promise<T>,
): Promise<T> =>
  audited(
    mill.audit,
    { actor: viewer.actor, action, target, ...(details === undefined ? {} : { details }) },
    async () => {
      const answer = await work();
      return { answer, outcome: answer.outcome };
    },
    { refusal: (error) => `refused: ${problemOf(error).message}`, lost: settings.onError },
  );
