import { expect, it } from 'vitest';
import { freshUri } from '../../support/stores.js';
import { runImport } from '../import/imports.js';
import { runOriginal, runOurs } from './run-app.js';

interface Outcome {
  readonly sent: readonly string[];
  readonly plans: readonly (readonly [to: string, state: string])[];
  readonly running: boolean;
}

it('the reminders come to the same on mongodb-cron, and with one import changed', async () => {
  const [theirs, ours] = await Promise.all([
    runOriginal('mongodb-cron', freshUri()),
    runOurs('mongodb-cron', freshUri()),
  ]);
  expect(JSON.parse(theirs)).toMatchObject({
    sent: ['ada', 'bob', 'flaky', 'team', 'team', 'team'],
    told: ['start', 'mailbox is full', 'idle', 'stop'],
  });
  expect(ours).toBe(theirs);
}, 600_000);

it('the reminders that mongodb-cron has left go on in place, none of them twice', async () => {
  const uri = freshUri();
  const { sent: first } = JSON.parse(await runOriginal('mongodb-cron', uri, { STOP_AFTER: '2' })) as Outcome;
  expect(first.length).toBeGreaterThanOrEqual(2);
  const { report } = await runImport('mongodb-cron', { from: uri, store: ['--store', uri] }, [
    '--from-collection',
    'reminders',
  ]);
  expect(report.jobs.created).toBe(0);
  const { sent, plans, running } = JSON.parse(await runOurs('mongodb-cron', uri)) as Outcome;
  expect(running).toBe(false);
  expect(sent.filter((to) => to !== 'team')).toEqual(['ada', 'bob', 'flaky']);
  // A digest that was due between the two processes is sent once, however often it was due.
  expect(sent.filter((to) => to === 'team').length).toBeGreaterThan(0);
  expect(plans).toContainEqual(['later', 'planned']);
}, 600_000);
