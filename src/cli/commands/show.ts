import type { Attempt, FoundDocument, FoundTask, Job, Reason } from '../../index.js';
import { onStore, withStore, type Session, type StoreFlags } from '../context.js';
import { Exit } from '../exit.js';
import { findWork, taskRef } from '../find-work.js';
import type { CommandBuilder } from '../command-builder.js';
import { clean, cleanLines, plural } from '../render/text.js';
import { moment, span } from '../render/time.js';
import { progressText, styleOf } from '../render/work.js';

interface Flags extends StoreFlags {
  readonly documents?: string;
  readonly stack?: boolean;
}

export function addShow(builder: CommandBuilder): void {
  const command = builder.command('show <id>', {
    summary: 'shows one piece of work, and why it does not run',
    examples: [
      ['tidemill show 6919b0f2c4', 'a job'],
      ['tidemill show sync-order/1042', 'the reactive task of a document'],
      ['tidemill show ada --documents tenants', 'a document with a schedule'],
      ['tidemill show 6919b0f2c4 --stack', 'with the stacks of its errors'],
    ],
  });
  withStore(
    command
      .option('--documents <collection>', 'the id is of a document in this collection or table')
      .option('--stack', 'print the stacks of errors'),
  ).action(
    builder.action((id: string, flags: Flags) =>
      onStore(flags, builder.terminal, 'work', (session) => show(session, id, flags)),
    ),
  );
}

async function show(session: Session, id: string, flags: Flags): Promise<Exit | undefined> {
  const { mill, out } = session;
  const work = await findWork(session, id, flags.documents);
  if (work === undefined) {
    out.note(
      flags.documents === undefined
        ? `No job and no reactive task has the id "${id}".`
        : `No document of ${flags.documents} has the id "${id}".`,
    );
    out.document(null);
    return Exit.NOTHING_FOUND;
  }
  switch (work.kind) {
    case 'job': {
      const why = await mill.why({ kind: 'jobs', id: work.job.id });
      out.document({ kind: 'job', ...work.job, why });
      showJob(session, work.job, why, flags);
      return undefined;
    }
    case 'task': {
      const why = await mill.why({ kind: 'tasks', id: work.task.id });
      const source = await mill.tasks.document(work.task.id);
      out.document({ kind: 'task', ...work.task, source, why });
      showTask(session, work.task, why, source, flags);
      return undefined;
    }
    case 'document':
      out.document({ kind: 'document', ...work.document });
      showDocument(session, work.document);
      return undefined;
    default:
      return work satisfies never;
  }
}

const at = (date: Date | null | undefined): string | undefined =>
  date instanceof Date ? moment(date, Date.now()) : undefined;

function title({ out }: Session, name: string, status: string): void {
  out.print(`${out.paint('bold', clean(name))}  ${out.paint(styleOf(status) ?? 'reset', status)}`, '');
}

function showJob(session: Session, job: Job, why: readonly Reason[], flags: Flags): void {
  title(session, job.name, job.status);
  session.out.facts([
    ['id', job.id],
    ['due', job.status === 'pending' ? at(job.nextRunAt) : undefined],
    ['running since', job.status === 'processing' ? at(job.lockedAt) : undefined],
    ['running on', job.status === 'processing' ? job.claimedBy : undefined],
    ['finished', at(job.finishedAt)],
    ['created', at(job.createdAt)],
    [
      'schedule',
      job.repeatInterval === undefined ? undefined : `${job.repeatInterval} (${job.timezone ?? 'UTC'})`,
    ],
    ['priority', job.priority === 0 ? undefined : String(job.priority)],
    ['unique key', job.uniqueKey],
    ['limit key', job.limitKey],
    ['must start by', at(job.startBy)],
    ['progress', progressText(job.progress)],
    ['failed', job.failCount === 0 ? undefined : plural(job.failCount, 'time')],
    ['error', job.failReason === undefined ? undefined : clean(job.failReason)],
  ]);
  reasons(session, why);
  json(session, 'Data', job.data);
  if (job.result !== undefined) json(session, 'Result', job.result);
  attempts(session, job.history ?? [], flags);
  const logs = job.logs ?? [];
  if (logs.length > 0)
    section(
      session,
      'Log',
      logs.map(({ at: time, message, fields }) =>
        [time.toISOString(), clean(message), fields === undefined ? '' : clean(JSON.stringify(fields))]
          .filter((part) => part !== '')
          .join('  '),
      ),
    );
}

function showTask(
  session: Session,
  task: FoundTask,
  why: readonly Reason[],
  source: { readonly collection: string; readonly document: unknown } | undefined,
  flags: Flags,
): void {
  title(session, taskRef(task), task.status);
  session.out.facts([
    ['due', task.status === 'pending' ? at(task.scheduledAt) : undefined],
    ['running since', at(task.lockedAt)],
    ['running on', task.lockedAt === null ? undefined : task.claimedBy],
    ['finished', at(task.lastFinalizedAt)],
    ['last success', at(task.lastSuccess?.at)],
    ['created', at(task.createdAt)],
    ['limit key', task.limitKey],
    ['attempts', task.attempts === 0 ? undefined : String(task.attempts)],
    ['error', task.lastError === undefined ? undefined : clean(task.lastError)],
  ]);
  reasons(session, why);
  if (source === undefined) section(session, 'Document', ['Deleted.']);
  else json(session, `Document in ${source.collection}`, source.document);
  attempts(session, task.executionHistory ?? [], flags);
}

function showDocument(session: Session, document: FoundDocument): void {
  const failure = document.failure ?? undefined;
  title(session, document.title, document.state);
  session.out.facts([
    ['due', at(document.sleepUntil)],
    ['interval', document.interval ?? 'once'],
    ['zone', document.timezone ?? undefined],
    ['until', at(document.repeatUntil)],
    ['removed when it ends', document.autoRemove === true ? 'yes' : undefined],
    ['failed', failure && `${plural(failure.count, 'time')}, last ${at(failure.at) ?? ''}`],
    ['error', failure && clean(failure.reason)],
  ]);
  json(session, 'Document', document.document);
}

function section({ out }: Session, head: string, lines: readonly string[]): void {
  out.print('', out.paint('dim', head), ...lines.map((line) => `  ${line}`));
}

function reasons(session: Session, why: readonly Reason[]): void {
  if (why.length > 0)
    section(
      session,
      'Why it does not run',
      why.map(({ text }) => clean(text)),
    );
}

function json(session: Session, head: string, value: unknown): void {
  const text = JSON.stringify(value, undefined, 2) as string | undefined;
  section(session, head, cleanLines(text ?? 'undefined').split('\n'));
}

function attempts(session: Session, history: readonly Attempt[], { stack }: Flags): void {
  if (history.length === 0) return;
  const { out } = session;
  section(session, 'Attempts (most recent)', []);
  for (const { attempt, status, startedAt, durationMs, instanceId, error } of history) {
    const head = `${String(attempt).padStart(3)}  ${startedAt.toISOString()}  ${span(durationMs).padStart(7)}  ${clean(instanceId)}`;
    out.print(
      `  ${head}  ${out.paint(styleOf(status) ?? 'reset', status)}${error === undefined ? '' : `  ${clean(error.message)}`}`,
    );
    if (stack === true && error?.stack !== undefined)
      out.print(
        ...cleanLines(error.stack)
          .split('\n')
          .map((line) => out.paint('dim', `       ${line}`)),
      );
  }
}
