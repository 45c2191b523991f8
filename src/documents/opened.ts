/** The store of a scheduler that is open, and what is done with it without a run. */
import { systemClock, type Clock } from '../core/clock.js';
import { ServerClock } from '../core/server-clock.js';
import type { DocumentJob, DocumentJobStore } from '../store/documents.js';
import { Intervals } from '../time/interval.js';
import { checkJobStore, type SchedulerOptions, type ScheduleSettings } from './options.js';
import { conclude } from './run/conclude.js';

/** The clock of a scheduler, and how its estimate of the store's time is kept current. */
interface Time {
  readonly clock: Clock;
  /** Reads the store's time again if the estimate is older than a minute. */
  readonly refresh: () => Promise<void>;
}

const CLOCK_AGE_MS = 60_000;
const nothing = (): Promise<void> => Promise.resolve();

/**
 * Returns the given clock, else the store's own, else an estimate of the time that the store reports, else the
 * process's clock.
 */
function timeOf(store: DocumentJobStore<never>, given: Clock | undefined): Time {
  const clock = given ?? store.clock;
  if (clock !== undefined) return { clock, refresh: nothing };
  if (store.now === undefined) return { clock: systemClock, refresh: nothing };
  const estimate = new ServerClock();
  const refresh = async (): Promise<void> => {
    if (estimate.age <= CLOCK_AGE_MS) return;
    const sentAt = estimate.monotonic();
    const now = await store.now?.();
    if (now !== undefined) estimate.learn(now, sentAt, estimate.monotonic());
  };
  return { clock: estimate, refresh };
}

export interface Opened<Doc> {
  readonly store: DocumentJobStore<Doc>;
  readonly time: Time;
}

/** Opens the store of a scheduler. */
export async function opened<Doc>(
  where: string,
  { store: given, clock }: SchedulerOptions<Doc>,
  settings: ScheduleSettings,
): Promise<Opened<Doc>> {
  const store = typeof given === 'function' ? await given() : given;
  checkJobStore(where, store);
  await store.open?.({ counts: settings.retry !== undefined });
  return { store, time: timeOf(store as DocumentJobStore<never>, clock) };
}

/**
 * Plans the next run of a document as if it had just run. Returns false if `sleepUntil` or the schedule in the store
 * differs from what `document` says. Throws if the schedule cannot be parsed.
 */
export async function reschedule<Doc>(
  { store, time }: Opened<Doc>,
  settings: ScheduleSettings,
  document: Doc | DocumentJob<Doc>,
  signal: AbortSignal,
): Promise<boolean> {
  const job = store.read?.(document as Doc) ?? (document as DocumentJob<Doc>);
  await time.refresh();
  const about = { settings, intervals: new Intervals(), now: new Date(time.clock.now()), marks: false };
  const conclusion = conclude(job, { kind: 'returned', result: undefined }, about);
  if (conclusion?.problem !== undefined) throw conclusion.problem;
  const { revision } = job;
  const basis = revision === undefined ? {} : { ifRevision: revision };
  const fenced = { ifSleepUntil: job.sleepUntil ?? null, ...basis, signal };
  const ending = conclusion?.ending;
  if (ending === undefined) return false;
  return 'remove' in ending ? store.remove(job.id, fenced) : store.update(job.id, ending.changes, fenced);
}
