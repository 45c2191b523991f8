import { Scheduler, type ScheduleErrorContext, type SchedulerOptions } from '../../src/documents/index.js';
import { virtualClock, type VirtualClock } from '../../src/testing/virtual-clock.js';
import { OwnStore } from './own-store.js';
import { cleanUpAfterEach } from '../support/cleanup.js';

const NOON = '2026-03-02T12:00:00.000Z';
/** A time on the day on which these tests take place. */
export const at = (time: string): Date => new Date(`2026-03-02T${time}Z`);

export interface TestScheduler {
  readonly clock: VirtualClock;
  readonly store: OwnStore;
  readonly scheduler: Scheduler;
  /** What happened, in order. */
  readonly seen: string[];
  readonly errors: { error: Error; where: string }[];
}

/** Stopped after the test. */
export const open: Scheduler[] = [];
cleanUpAfterEach(() => Promise.all(open.splice(0).map((scheduler) => scheduler.stop({ timeout: 0 }))));

/** A scheduler on a store of three methods, at noon. */
export function aTestScheduler(options: Partial<SchedulerOptions> = {}): TestScheduler {
  const clock = virtualClock(NOON);
  const store = new OwnStore(clock);
  const seen: string[] = [];
  const errors: TestScheduler['errors'] = [];
  const scheduler = new Scheduler({
    store,
    clock,
    logger: false,
    onDocument: (_document, { job }) => void seen.push(String(job.id)),
    onError: (error: Error, { where }: ScheduleErrorContext) => void errors.push({ error, where }),
    ...options,
  });
  open.push(scheduler);
  return { clock, store, scheduler, seen, errors };
}

export const times = (clock: VirtualClock): string => new Date(clock.now()).toISOString().slice(11, 23);
