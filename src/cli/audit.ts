import { userInfo } from 'node:os';
import { audited, reasonOf, type Done } from '../mill/tools.js';
import type { Session } from './context.js';

/** Who sits there, for the audit log. Inside a container there may be no such user. */
export function actor(where: 'command line' | 'dashboard'): string {
  try {
    return `${userInfo().username} (${where})`;
  } catch {
    return `somebody (${where})`;
  }
}

export interface Recorded {
  /** Such as `jobs.retry`. */
  readonly action: string;
  /** What it is done to, in words. */
  readonly target: string;
  /** The same for programs, in full. */
  readonly details?: unknown;
}

/** Does it, and keeps who did what in the store, from before it is done. */
export const recordedAnswer = <T>(
  { mill, out }: Session,
  about: Recorded,
  work: () => Promise<Done<T>>,
): Promise<T> =>
  audited(mill.audit, { actor: actor('command line'), ...about }, work, {
    refusal: (error) => `failed: ${out.safe(reasonOf(error))}`,
    lost: (error) => out.note(`The audit log could not be completed: ${reasonOf(error)}`),
  });

/** The same, where `work` answers what came of it, in a word or two. */
export const recorded = (session: Session, about: Recorded, work: () => Promise<string>): Promise<string> =>
  recordedAnswer(session, about, async () => {
    const outcome = await work();
    return { answer: outcome, outcome };
  });
