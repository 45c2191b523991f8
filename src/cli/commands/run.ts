import type { EnqueueOptions } from '../../index.js';
import { shellArgument } from '../../mill/tools.js';
import { recorded, recordedAnswer } from '../audit.js';
import { onStore, withStore, type Session, type StoreFlags } from '../context.js';
import { CliError, Exit } from '../exit.js';
import { milliseconds } from '../filters.js';
import { findWork } from '../find-work.js';
import type { CommandBuilder } from '../command-builder.js';
import { knownNames } from '../names.js';
import { readPayload } from '../payload.js';
import { cleanLines } from '../render/text.js';
import { relative } from '../render/time.js';

interface Flags extends StoreFlags {
  readonly data?: string;
  readonly delay?: string;
  readonly uniqueKey?: string;
  readonly priority?: string;
  readonly key?: string;
  readonly wait?: string | true;
  readonly documents?: string;
}

const DEFAULT_WAIT = '5m';

export function addRun(builder: CommandBuilder): void {
  const command = builder.command('run <name>', {
    summary: 'enqueues a job, or runs a schedule now',
    about:
      'Without --data, a name that has a schedule runs once now; its times do not change. Otherwise a new job is enqueued. ' +
      'Handlers run in your processes, not here.',
    examples: [
      [`tidemill run send-email --data '{"to":"ada@example.com"}'`, 'a new job'],
      ['tidemill run build-report --data @report.json --wait', 'waits for its result and prints it'],
      ['tidemill run daily-report', 'one run of the schedule of that name'],
      ['tidemill run ada --documents tenants', 'makes a document with a schedule due now'],
    ],
  });
  withStore(
    command
      .option('--data <json>', 'the payload: JSON, or @file')
      .option('--delay <duration>', 'run no earlier than this, such as 10m')
      .option('--unique-key <key>', 'if a live job of the name has this key, return that job')
      .option('--priority <number>', 'from -10 to 10; higher runs first')
      .option('--key <key>', 'the unique key of the schedule, if its name has several')
      .option('--documents <collection>', 'the name is the id of a document in this collection or table')
      .option('--wait [duration]', `wait for the result, up to this long (${DEFAULT_WAIT})`),
  ).action(
    // May be the first command on a store: like your own producers, it creates what is missing.
    builder.action((name: string, flags: Flags) =>
      onStore(flags, builder.terminal, undefined, (session) => run(session, name, flags)),
    ),
  );
}

async function run(session: Session, name: string, flags: Flags): Promise<Exit | undefined> {
  const { mill, out } = session;
  if (flags.documents !== undefined) return runDocument(session, name, flags.documents);
  const { jobs, tasks } = await knownNames(session);
  if (tasks.has(name) && !jobs.has(name))
    throw new CliError(
      Exit.USAGE,
      `"${name}" is a reactive task: changes of its data start it. To run it for one document: tidemill retry ${shellArgument(`${name}/<id>`)}; ` +
        `for all changed documents: tidemill reconcile ${shellArgument(name)}`,
    );
  if (!(await mill.instances()).some(({ alive, names }) => alive && names.includes(name)))
    out.note(`No live instance runs "${name}" now; the job waits until one does.`);
  const schedule = isJob(flags) ? undefined : await mill.schedules.get(name, flags.key);
  if (schedule !== undefined) return runSchedule(session, name, flags);
  return enqueue(session, name, flags);
}

async function runDocument(session: Session, id: string, collection: string): Promise<Exit | undefined> {
  const { mill, out } = session;
  const work = await findWork(session, id, collection);
  if (work?.kind !== 'document') {
    out.note(`There is no document "${id}" in ${collection}.`);
    out.document({ collection, id, outcome: 'missing' });
    return Exit.NOTHING_FOUND;
  }
  const schedule = mill.documents({ collection, onDocument: () => undefined });
  const act = (): Promise<string> => schedule.runNow(work.document.id);
  const entry = { action: 'documents.runNow', target: `${collection} ${id}` };
  const outcome = await recorded(session, entry, act);
  out.print(
    outcome === 'due'
      ? `The document "${id}" of ${collection} is due now.`
      : `The document "${id}" changed meanwhile or is running; it was left alone.`,
  );
  out.document({ collection, id, outcome });
  return outcome === 'due' ? undefined : Exit.FAILED;
}

/** These options describe a new job; a run of a schedule takes none of them. */
const isJob = ({ data, delay, uniqueKey, priority }: Flags): boolean =>
  [data, delay, uniqueKey, priority].some((flag) => flag !== undefined);

async function runSchedule(session: Session, name: string, { key }: Flags): Promise<undefined> {
  const { mill, out } = session;
  const outcome = await recorded(
    session,
    { action: 'schedules.runNow', target: key === undefined ? name : `${name} (${key})` },
    async () => (await mill.schedules.runNow(name, key)).outcome,
  );
  out.print(
    outcome === 'due'
      ? `One run of the schedule "${name}" is due now.`
      : `The schedule "${name}" is already running.`,
  );
  out.document({ schedule: name, outcome });
  return undefined;
}

async function enqueue(session: Session, name: string, flags: Flags): Promise<Exit | undefined> {
  const { mill, out } = session;
  const options: EnqueueOptions = {
    ...(flags.delay === undefined ? {} : { delay: milliseconds('delay', flags.delay) }),
    ...(flags.uniqueKey === undefined ? {} : { uniqueKey: flags.uniqueKey }),
    ...(flags.priority === undefined ? {} : { priority: Number(flags.priority) }),
  };
  const data = flags.data === undefined ? {} : readPayload(flags.data);
  const job = await recordedAnswer(session, { action: 'jobs.enqueue', target: name }, async () => {
    const answer = await mill.enqueue(name, data, options);
    return { answer, outcome: `${answer.outcome} ${answer.id}` };
  });
  out.print(
    `${job.outcome === 'created' ? 'Enqueued' : 'Found live'} job ${job.id} (${name}), due ${relative(job.nextRunAt, Date.now())}.`,
  );
  if (flags.wait === undefined) {
    out.document(job);
    return undefined;
  }
  const timeout = milliseconds('wait', flags.wait === true ? DEFAULT_WAIT : flags.wait);
  const result = await mill.jobs.result(job.id, { timeout, signal: session.terminal.interrupted() });
  out.print(
    result === undefined ? 'Completed.' : `Completed: ${cleanLines(JSON.stringify(result, undefined, 2))}`,
  );
  out.document(await mill.jobs.get(job.id));
  return undefined;
}
