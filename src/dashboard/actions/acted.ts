import { audited, type Done } from '../../mill/tools.js';
import type { RequestContext } from '../request-context.js';
import type { ActAnswer } from '../contract.js';
import { problemOf } from '../http/errors.js';

export interface AuditedAction {
  readonly action: string;
  /** Shown in the audit log, which every viewer may read. */
  readonly target: string;
  /** The exact target if `target` hides it. Stored, but not shown on the page. */
  readonly details?: unknown;
}

/** Writes the audit entry before the action, so that nothing is done without an entry. */
export const acted = <T extends Pick<ActAnswer, 'outcome'>>(
  context: RequestContext,
  about: AuditedAction,
  work: () => Promise<T>,
): Promise<T> =>
  actedWith(context, about, async () => {
    const answer = await work();
    return { answer, outcome: answer.outcome };
  });

/** The same for an action that tells only afterwards what belongs into its entry. */
export const actedWith = <T>(
  { mill, viewer, settings }: RequestContext,
  { action, target, details }: AuditedAction,
  work: () => Promise<Done<T>>,
): Promise<T> =>
  audited(
    mill.audit,
    { actor: viewer.actor, action, target, ...(details === undefined ? {} : { details }) },
    work,
    { refusal: (error) => `refused: ${problemOf(error).message}`, lost: settings.onError },
  );
