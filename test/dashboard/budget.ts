/** What each page may cost on a large store, in keys and rows that the database examines, not in milliseconds. */
import { describe, expect, it } from 'vitest';
import type { Tidemill } from '../../src/index.js';
import type { Client } from './client.js';

export const NAMES = ['mail', 'report', 'sync', 'thumb', 'push'];
export const TASKS = ['mail', 'sync', 'audit'];
export const JOBS = 150_000;
export const TASKS_EACH = 20_000;
/** Shared out among the jobs, and among the tasks, in turn. */
export const STATUSES = ['completed', 'completed', 'failed', 'pending', 'cancelled', 'completed', 'failed'];
export const TASK_STATUSES = ['pending', 'completed', 'failed', 'completed', 'failed'];

const AGO = encodeURIComponent('2020-01-01T00:00:00Z');

/** The stores that the pages are tested on hold far more than this of each name, status and kind. */
const BUDGETS: readonly (readonly [page: string, most: number])[] = [
  ['work', 400],
  ['work?order=asc', 400],
  ['work?name=mail', 800],
  ['work?name=mail&status=completed', 300],
  ['work?name=mail&name=sync&status=completed&status=failed', 800],
  ['work?status=failed&sort=updatedAt', 300],
  ['work?status=pending&sort=dueAt&order=asc', 900],
  [`work?name=mail&status=failed&time=createdAt&from=${AGO}`, 300],
  ['work?kind=tasks', 1_500],
  ['work?kind=tasks&name=audit', 800],
  ['work?kind=tasks&name=audit&status=failed', 300],
  ['work?kind=tasks&order=asc', 1_500],
  ['schedules', 300],
  ['audit', 300],
  // A key and a document for each failure that is examined.
  ['failures?kind=jobs', 12_000],
  ['failures?kind=tasks', 32_000],
];

/** Also follows every list to its next page: a later page costs no more than the first. */
async function turned(client: Client, page: string): Promise<string | undefined> {
  const { next, partial } = await client.get<{ next?: string | null; partial?: boolean }>(page);
  expect(partial ?? false, page).toBe(page.startsWith('failures'));
  if (next === undefined || next === null) return undefined;
  return `${page}${page.includes('?') ? '&' : '?'}cursor=${encodeURIComponent(next)}`;
}

/** More entries than one page of the audit log has. */
export async function fillAudit(mill: Tidemill): Promise<void> {
  for (let n = 0; n < 60; n += 1)
    await mill.audit.append({
      actor: 'ada',
      action: 'retry',
      target: `job ${String(n)}`,
      outcome: 'retried',
    });
}

/** What the database examined for some requests, and by which plans. */
export interface Cost {
  readonly examined: number;
  readonly plans: string;
}

export interface BudgetOptions {
  readonly on: string;
  readonly unit: string;
  readonly client: () => Client;
  readonly costOf: (work: () => Promise<unknown>) => Promise<Cost>;
}

export function budgetFacts({ on, unit, client, costOf }: BudgetOptions): void {
  const costs = async (most: number, work: () => Promise<unknown>): Promise<void> => {
    const { examined, plans } = await costOf(work);
    expect(examined, plans).toBeLessThanOrEqual(most);
  };

  describe(`the cost of pages among ${String(JOBS)} jobs and ${String(3 * TASKS_EACH)} tasks on ${on}`, () => {
    it.each(BUDGETS)(
      `the page %s and its next page examine at most %i ${unit} each on ${on}`,
      async (page, most) => {
        let next: string | undefined;
        await costs(most, async () => (next = await turned(client(), page)));
        if (next !== undefined) await costs(most, () => client().get(next!));
      },
    );

    it(`the overview counts up to its cap, once for all viewers, on ${on}`, async () => {
      // Up to 100,000 of each status in all, shared among the names; most statuses have fewer here.
      await costs(JOBS + 3 * TASKS_EACH + 5_000, () =>
        Promise.all(Array.from({ length: 20 }, () => client().get('overview?range=1h'))),
      );
      await costs(1_000, () => client().get('overview?range=15m'));
    });

    it(`the detail pages of a job and a task examine at most 200 ${unit} on ${on}`, async () => {
      for (const kind of ['jobs', 'tasks']) {
        const list = await client().get<{ items: { id: string }[] }>(`work?kind=${kind}&status=pending`);
        await costs(200, () => client().get(`work/${kind}/${list.items[0]!.id}`));
      }
    });
  });
}
