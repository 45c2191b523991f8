/**
 * Takes over what mongodash has stored, in its own database: the state of its reactive tasks, and when its cron tasks
 * run next. `tidemill/compat/mongodash` knows how.
 */
import type { TakenOver, TakeOverOptions } from '../../../compat/mongodash/take-over/take-over.js';
import { recordedAnswer } from '../../audit.js';
import { confirmed } from '../../confirm.js';
import type { Session } from '../../context.js';
import { CliError, Exit } from '../../exit.js';
import { clean } from '../../render/text.js';
import { progressBar } from '../../render/progress.js';
import type { ImportFlags } from '../import-run.js';
import { printMapping } from '../report.js';

type Taken = TakenOver['reactiveTasks'][number];

const loading = () =>
  import('../../../compat/mongodash/take-over/take-over.js').catch(() => {
    throw new CliError(Exit.USAGE, 'Reading MongoDB needs the driver: npm install mongodb');
  });

const counted = (count: number): string => count.toLocaleString('en-US');
const sum = (tasks: readonly Taken[], part: 'total' | 'written'): number =>
  tasks.reduce((all, task) => all + task[part], 0);

const STOPPED =
  'An instance of mongodash that waits for its next cron task cannot be seen. Are all of its instances stopped?';

const MAPPING = [
  ['completed, document unchanged', 'a completed task: it does not run again'],
  ['failed, document unchanged', 'a failed task with its attempts and errors'],
  ['pending, processing', 'a pending task: due at its time, or at once if it was interrupted'],
  ['the document has changed since', 'a task that the first start plans by the document'],
  ['cron task', 'a schedule with the time of its next run; what is overdue runs once, at once'],
  ['lock', 'nothing: it ends by itself'],
] as const;

/** Counts first; then takes over, unless this is a dry run, and prints what became of it. */
export async function importMongodash(session: Session, flags: ImportFlags): Promise<Exit> {
  const { out, place } = session;
  const { takeOverFrom } = await loading();
  const { dryRun = false, move = false, fromCollection } = flags;
  const where = fromCollection === undefined ? {} : { globalsCollection: fromCollection };
  out.print(out.paint('bold', `mongodash at ${place}`));
  const found = await takeOverFrom(flags.from, { ...where, dryRun: true });
  if (!found.isKnown)
    throw new CliError(
      Exit.NOTHING_FOUND,
      'The database has nothing of mongodash. Name the right one in --from; if you passed globalsCollection to init, add --from-collection with its name.',
    );
  printMapping(out, MAPPING);
  if (!dryRun && found.cronTasks.length > 0 && !(await confirmed(session, STOPPED, flags.yes)))
    return Exit.FAILED;
  const take = (): Promise<TakenOver> =>
    withBar(session, sum(found.reactiveTasks, 'total'), (onProgress) =>
      takeOverFrom(flags.from, { ...where, move, onProgress }),
    );
  const taken = dryRun
    ? found
    : await recordedAnswer(session, { action: 'import', target: `mongodash at ${place}` }, async () => {
        const answer = await take();
        return { answer, outcome: outcomeOf(answer, move) };
      });
  print(session, taken, dryRun);
  if (!dryRun)
    out.print('', 'Now deploy with the new import. Do not start mongodash again on this database.');
  const { reactiveTasks, cronTasks, leftOut } = taken;
  out.document({ library: 'mongodash', from: place, dryRun, move, reactiveTasks, cronTasks, leftOut });
  return Exit.OK;
}

/** One line for the audit log. */
function outcomeOf({ reactiveTasks, cronTasks }: TakenOver, move: boolean): string {
  const records = counted(sum(reactiveTasks, 'written'));
  const source = move ? 'removed from' : 'left in';
  return `${records} task records written and ${counted(cronTasks.length)} cron tasks taken over; ${source} the collections of mongodash`;
}

async function withBar<T>(
  { terminal }: Session,
  total: number,
  work: (onProgress: NonNullable<TakeOverOptions['onProgress']>) => Promise<T>,
): Promise<T> {
  const bar = progressBar(terminal.stderr, total);
  try {
    return await work((counts) => bar.show(sum(counts, 'total')));
  } finally {
    bar.end();
  }
}

function print({ out }: Session, { reactiveTasks, cronTasks, leftOut }: TakenOver, dryRun: boolean): void {
  out.print('', out.paint('bold', dryRun ? 'Would take over' : 'Taken over'));
  const numbers = ['total', 'written', 'handled', 'unfinished', 'changed'] as const;
  out.table(
    [
      { head: 'REACTIVE TASK', text: ({ task }: Taken) => task },
      { head: 'COLLECTION', text: ({ collection }: Taken) => collection },
      ...numbers.map((part) => ({
        head: part.toUpperCase(),
        text: (one: Taken) => counted(one[part]),
        align: 'right' as const,
      })),
    ],
    reactiveTasks,
  );
  out.print(
    `  cron tasks  ${counted(cronTasks.length)}${cronTasks.length === 0 ? '' : ': '}${names(cronTasks)}`,
  );
  if (leftOut.length === 0) return;
  out.print('', out.paint('bold', 'Left out'));
  for (const reason of leftOut) out.print(`  ${clean(reason)}`);
}

const names = (ids: readonly string[]): string => ids.map((id) => clean(id)).join(', ');
