import { expect, it } from 'vitest';
import { freshUri } from '../../support/stores.js';
import { runOriginal, runOurs } from './run-app.js';

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
