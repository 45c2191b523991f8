import { userInfo } from 'node:os';
import { audited, reasonOf, type Done } from '../mill/tools.js';
import type { Session } from './context.js';

/** The user, for the audit log. In a container the user may have no entry. */
export function actor(where: 'command line' | 'dashboard'): string {
  try {
    return `${userInfo().username} (${where})`;
  } catch {
    return `unknown user (${where})`;
  }
}

export interface Recorded {
  /** Such as `jobs.retry`. */
  readonly action: string;
  /** What the action affects, in words. */
  readonly target: string;
  /** The target in full, for programs. */
  readonly details?: unknown;
}

/**
 * Does the work and records it in the store's audit log: who does what before it begins, and the outcome afterwards.
 */
export const recordedAnswer = <T>(
  { mill, out }: Session,
  about: Recorded,
  work: () => Promise<Done<T>>,
): Promise<T> =>
  audited(mill.audit, { actor: actor('command line'), ...about }, work, {
    refusal: (error) => `failed: ${out.safe(reasonOf(error))}`,
    lost: (error) => out.note(`Could not record the outcome in the audit log: ${reasonOf(error)}`),
  });

/** The same for work that returns its outcome, in a word or two. */
export const recorded = (session: Session, about: Recorded, work: () => Promise<string>): Promise<string> =>
  recordedAnswer(session, about, async () => {
    const outcome = await work();
    return { answer: outcome, outcome };
  });
