import { setTimeout as sleep } from 'node:timers/promises';
import { recorded } from '../audit.js';
import { onStore, withStore, type Session, type StoreFlags } from '../context.js';
import { Exit } from '../exit.js';
import type { CommandBuilder } from '../command-builder.js';
import { progressBar } from '../render/progress.js';
import { clean, plural } from '../render/text.js';
import { span } from '../render/time.js';

interface Flags extends StoreFlags {
  readonly wait: boolean;
}

const ASK_EVERY_MS = 300;

export function addReconcile(builder: CommandBuilder): void {
  const command = builder.command('reconcile [task]', {
    summary: 'checks every document of one reactive task, or of all, again',
    about:
      'The leading instance does it in the background; this command shows the progress. Ctrl-C ends the command, not the reconciliation.',
    examples: [
      ['tidemill reconcile sync-order', 'with a progress bar until it is done'],
      ['tidemill reconcile --no-wait', 'all tasks, without waiting'],
    ],
  });
  withStore(command.option('--no-wait', 'request it without waiting')).action(
    builder.action((task: string | undefined, flags: Flags) =>
      onStore(flags, builder.terminal, 'work', (session) => reconcile(session, task, flags)),
    ),
  );
}

async function reconcile(session: Session, task: string | undefined, flags: Flags): Promise<Exit> {
  const { mill, out } = session;
  const startedAt = performance.now();
  let tasks: readonly string[] = [];
  await recorded(session, { action: 'tasks.reconcile', target: task ?? 'all tasks' }, async () => {
    tasks = (await mill.tasks.reconcile(task)).tasks;
    return `requested for ${plural(tasks.length, 'task')}`;
  });
  if (tasks.length === 0) {
    out.print('No reactive task is defined.');
    out.document({ tasks, done: true });
    return Exit.NOTHING_FOUND;
  }
  const { leader } = await mill.tasks.planning();
  const about = `${plural(tasks.length, 'task')}: ${clean(tasks.join(', '))}`;
  if (leader === null) out.note('No instance plans now; the reconciliation starts when one does.');
  const done = leader !== null && flags.wait && (await followed(session, new Set(tasks)));
  const took = span(performance.now() - startedAt);
  out.print(done ? `Reconciled ${about}, in ${took}.` : `Requested the reconciliation of ${about}.`);
  out.document({ tasks, done });
  return Exit.OK;
}

/** Returns false if the user stopped waiting. */
async function followed({ mill, terminal }: Session, tasks: ReadonlySet<string>): Promise<boolean> {
  const stop = terminal.interrupted();
  const bar = progressBar(terminal.stderr);
  try {
    for (;;) {
      const open = (await mill.tasks.planning()).reconciling.filter(({ task }) => tasks.has(task));
      if (open.length === 0) return true;
      const sum = (field: 'processed' | 'total'): number => open.reduce((all, one) => all + one[field], 0);
      bar.show(sum('processed'), sum('total'));
      await sleep(ASK_EVERY_MS, undefined, { signal: stop }).catch(() => undefined);
      if (stop.aborted) return false;
    }
  } finally {
    bar.end();
  }
}
