import { TidemillError } from '../../core/errors.js';
import { hasEnded, toJob } from '../../core/records/job.js';
import type { JobFilter, Store } from '../../store/port.js';
import { Changes, type JobChange } from './change.js';
import { ChangeChannel } from './channel.js';
import { ChangeSource } from './source.js';

/** One watch. */
interface Watching {
  readonly store: Store;
  readonly since: number;
  readonly stop: AbortSignal;
  readonly open: Set<ChangeChannel>;
}

/** The changes of the jobs that match. */
export async function* ofMany(
  filter: JobFilter,
  { store, since, stop, open }: Watching,
): AsyncGenerator<JobChange, void, void> {
  const source = new ChangeSource({ store, filter, since, stop, open });
  const changes = new Changes(since);
  try {
    for (let jobs = await source.next(); jobs !== undefined; jobs = await source.next()) {
      for (const job of jobs) {
        const change = changes.of(job);
        if (change === undefined) continue;
        source.told();
        yield change;
        if (stop.aborted) return;
      }
    }
  } finally {
    await source.close();
  }
}

/** A job as it is, and what happens to it until it has ended or is gone. */
export async function* ofJob(
  id: string,
  { store, since, stop, open }: Watching,
): AsyncGenerator<JobChange, void, void> {
  const channel = new ChangeChannel({ store, filter: { ids: [id] }, stop, open, changed: () => undefined });
  const changes = new Changes(since);
  try {
    await channel.open();
    let job = await store.jobs.get(id);
    if (job === undefined)
      throw new TidemillError(
        'JOB_MISSING',
        `There is no job ${id}; finished jobs are deleted after their retention.`,
      );
    changes.note(job);
    yield { job: toJob(job), change: 'current' };
    while (!hasEnded(job)) {
      await channel.open();
      if ((await channel.wait()) === 'stopped') return;
      job = await store.jobs.get(id);
      // Deleted, by hand or by a retention of 0.
      if (job === undefined) return;
      const change = changes.of(job);
      if (change === undefined) continue;
      channel.found();
      yield change;
    }
  } finally {
    await channel.close();
  }
}
