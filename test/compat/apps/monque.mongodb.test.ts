import { expect, it } from 'vitest';
import { freshUri, rawClient } from '../../support/stores.js';
import { olderJob } from '../monque/older-worker.js';
import { runOurs } from './run-app.js';

it('an application written for Monque works on a collection that Monque has filled', async () => {
  const uri = freshUri();
  const jobs = rawClient(uri).db().collection('monque_jobs');
  const due = { nextRunAt: new Date(Date.now() - 1_000) };
  await jobs.insertMany([
    olderJob('mail', { to: 'ada' }),
    olderJob('mail', { to: 'eve' }, { failCount: 2, failReason: 'timeout', ...due }),
    olderJob('mail', { to: 'old' }, { status: 'completed' }),
    olderJob('report', { kind: 'yearly' }, { repeatInterval: '0 0 1 1 *', uniqueKey: 'yearly', ...due }),
  ]);
  expect(JSON.parse(await runOurs('monque', uri))).toEqual({
    same: true,
    told: [
      'broken failed: broken, again',
      'broken failed: broken, again',
      'broken failed: broken, for good',
      'mail failed: mailbox is full, again',
    ],
    sent: ['ada', 'bob', 'eve', 'flaky', 'yearly'],
    stats: { pending: 1, completed: 5, failed: 1, cancelled: 1 },
    schedules: [[true, true]],
  });
}, 600_000);
