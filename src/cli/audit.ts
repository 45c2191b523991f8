import { userInfo } from 'node:os';
import type { Session } from './context.js';

/** Who sits there, for the audit log. Inside a container there may be no such user. */
export function actor(where: 'command line' | 'dashboard'): string {
  try {
    return `${userInfo().username} (${where})`;
  } catch {
    return `somebody (${where})`;
  }
}

/** Does it, and keeps who did what in the store. `work` answers what came of it, in a word or two. */
export async function recorded(
  { mill }: Session,
  action: string,
  target: string,
  work: () => Promise<string>,
): Promise<string> {
  const outcome = await work();
  await mill.audit.append({ actor: actor('command line'), action, target, outcome });
  return outcome;
}
