import { recordedAnswer } from '../audit.js';
import { confirmed } from '../confirm.js';
import { onStore, withStore, type Session, type StoreFlags } from '../context.js';
import { Exit } from '../exit.js';
import type { CommandBuilder } from '../command-builder.js';
import { plural } from '../render/text.js';

interface Flags extends StoreFlags {
  readonly yes?: boolean;
}

export function addForget(builder: CommandBuilder): void {
  const command = builder.command('forget <task>', {
    summary: 'deletes a reactive task that left the code, with all its records',
    about:
      'Also drops its triggers on PostgreSQL, unless another task needs them. Refused while a live instance runs the task. If it is interrupted, run it again.',
    examples: [
      ['tidemill forget sync-order', 'asks first'],
      ['tidemill forget sync-order --yes', 'without asking'],
    ],
  });
  withStore(command.option('--yes', 'do not ask for confirmation')).action(
    builder.action((task: string, flags: Flags) =>
      onStore(flags, builder.terminal, 'work', (session) => forget(session, task, flags)),
    ),
  );
}

async function forget(session: Session, task: string, { yes }: Flags): Promise<Exit> {
  const { mill, out } = session;
  const question = `Forget the reactive task "${task}" and delete all its records? This cannot be undone.`;
  if (!(await confirmed(session, question, yes))) return Exit.FAILED;
  const records = await recordedAnswer(session, { action: 'tasks.forget', target: task }, async () => {
    const answer = (await mill.tasks.forget(task)).records;
    return { answer, outcome: `forgotten, ${plural(answer, 'record')} deleted` };
  });
  out.print(`Forgot "${task}": ${plural(records, 'record')} deleted.`);
  out.document({ task, records });
  return Exit.OK;
}
