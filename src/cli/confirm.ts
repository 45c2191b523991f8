import type { Session } from './context.js';
import { CliError, Exit } from './exit.js';
import { clean } from './render/text.js';

/** Asks before an action with a large effect. Without a user to ask, it requires `--yes`. */
export async function confirmed(
  { terminal, out }: Pick<Session, 'terminal' | 'out'>,
  question: string,
  yes: boolean | undefined,
): Promise<boolean> {
  if (yes === true) return true;
  if (!terminal.interactive)
    throw new CliError(Exit.USAGE, `${question}\nCannot ask for confirmation here; pass --yes.`);
  const answer = await terminal.ask(`${clean(question)} [y/N] `);
  if (/^y(?:es)?$/iu.test(answer.trim())) return true;
  out.note('Nothing was changed.');
  return false;
}
