// runs in: npm run check
//
// Documents with schedules of their own, on a store of your own: three methods are all it takes. This one keeps its
// documents in a Map; yours may keep them in any database that can find and change one in a single step.
import assert from 'node:assert/strict';
import { Scheduler, type DocumentJob, type JobChanges, type JobStore } from 'tidemill/documents';
import { until } from './support/until.js';

type Reminder = { -readonly [K in keyof DocumentJob]: DocumentJob[K] };

class MapStore implements JobStore {
  readonly reminders = new Map<unknown, Reminder>();

  add(reminder: Reminder): void {
    this.reminders.set(reminder.id, reminder);
  }

  /** Finds one that is due, moves its `sleepUntil` to `lockUntil`, and answers it as it was: in one step. */
  async lockNext(lockUntil: Date): Promise<DocumentJob | null> {
    const isDue = ({ sleepUntil }: Reminder): boolean =>
      sleepUntil instanceof Date && sleepUntil <= new Date();
    const due = [...this.reminders.values()].find(isDue);
    if (due === undefined) return null;
    const before = { ...due };
    due.sleepUntil = lockUntil;
    return before;
  }

  /** Changes it only if its `sleepUntil` is still the one that was expected. */
  async update(
    id: unknown,
    changes: JobChanges,
    { ifSleepUntil }: { ifSleepUntil?: Date | null },
  ): Promise<boolean> {
    const reminder = this.#asExpected(id, ifSleepUntil);
    if (reminder !== undefined) Object.assign(reminder, changes);
    return reminder !== undefined;
  }

  async remove(id: unknown, { ifSleepUntil }: { ifSleepUntil?: Date | null }): Promise<boolean> {
    return this.#asExpected(id, ifSleepUntil) !== undefined && this.reminders.delete(id);
  }

  #asExpected(id: unknown, expected?: Date | null): Reminder | undefined {
    const reminder = this.reminders.get(id);
    return expected === undefined || reminder?.sleepUntil?.getTime() === expected?.getTime()
      ? reminder
      : undefined;
  }
}

const store = new MapStore();
const said: string[] = [];
const now = Date.now();

// The four kinds: at once, later, again and again, and gone when it is done.
store.add({ id: 'once', sleepUntil: new Date(now) });
store.add({ id: 'later', sleepUntil: new Date(now + 500) });
store.add({
  id: 'again',
  sleepUntil: new Date(now),
  interval: '@every 500ms',
  repeatUntil: new Date(now + 3_000),
});
store.add({ id: 'gone', sleepUntil: new Date(now), autoRemove: true });

await using scheduler = new Scheduler({
  store,
  onDocument: (_document, { job }) => void said.push(String(job.id)),
  onIdle: () => console.log('nothing to do just now'),
  onError: (error, { where }) => console.error(`${where}: ${error.message}`),
});
await scheduler.start();
await until('all have ended', () =>
  [...store.reminders.values()].every(({ sleepUntil }) => sleepUntil === null),
);
await scheduler.stop();

assert.deepEqual([...store.reminders.keys()], ['once', 'later', 'again']);
assert.deepEqual(new Set(said), new Set(['once', 'later', 'again', 'gone']));
assert.ok(said.filter((id) => id === 'again').length > 1);
console.log(said.join(', '));
