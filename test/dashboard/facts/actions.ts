import { describe, expect, it } from 'vitest';
import { until } from '../../support/mills.js';
import type { BrowserFixture } from '../browser-fixture.js';
import { rows } from '../visit.js';

export function actionFacts(fixture: BrowserFixture): void {
  describe('schedules page', () => {
    it('a schedule shows its next ten runs in its own time zone, runs now, pauses and resumes', async () => {
      const { mill } = fixture.sample;
      await using viewer = await fixture.visit();
      await viewer.go('schedules');
      await until(
        'ten runs are listed',
        async () => (await viewer.page.locator('.runs time').count()) === 10,
      );
      expect(await viewer.page.locator('.runs time').allTextContents()).toEqual(
        Array.from({ length: 10 }, () => expect.stringContaining('03:00') as string),
      );
      await viewer.button(/^Run now/u);
      await until('it has run', async () => {
        const [schedule] = (await mill.jobs.find({ name: 'daily-report' })).items;
        return (schedule?.history?.length ?? 0) > 0;
      });
      await viewer.sees('Last run');
      await viewer.button(/^Pause the schedule/u);
      await viewer.sees('Paused: no run is planned.');
      await viewer.button(/^Resume the schedule/u);
      await until(
        'ten runs are listed again',
        async () => (await viewer.page.locator('.runs time').count()) === 10,
      );
    });
  });
  describe('limits page', () => {
    it('a limit is changed by field, reset after a question, and its breaker opened', async () => {
      const { mill } = fixture.sample;
      await using viewer = await fixture.visit();
      await viewer.go('limits');
      await viewer.button('Change the limit of mail-server');
      await viewer.page.getByLabel('At once').fill('7');
      await viewer.button('Change limit');
      await viewer.sees(/^7 at once/u);
      await viewer.sees(/the code says: 20 at once/u);
      expect((await mill.limits.get('mail-server'))?.limits).toMatchObject({
        concurrency: 7,
        breaker: { failures: 50 },
      });
      await viewer.button('Reset the limit of mail-server');
      await viewer.page.getByRole('dialog').getByRole('button', { name: 'Reset' }).click();
      await viewer.sees(/^20 at once/u);
      await viewer.button('Open breaker of mail-server');
      expect(await viewer.barriers()).toEqual([]);
      await viewer.page.getByRole('dialog').getByRole('button', { name: 'Open breaker' }).click();
      await viewer.sees('breaker open');
      await viewer.button(/^Close breaker/u);
      await viewer.sees('breaker closed');
    });
  });
  describe('bulk actions on the page', () => {
    it('a bulk retry shows a count, asks for confirmation, runs in the background and is audited', async () => {
      const { mill } = fixture.sample;
      await using viewer = await fixture.visit();
      await viewer.go('failures');
      await viewer.button(/^Retry all of charge-card/u);
      await viewer.sees(/4 jobs named charge-card, in status failed/u);
      const before = (await mill.jobs.get((await mill.jobs.find({ name: 'charge-card' })).items[0]!.id))!
        .history!.length;
      await viewer.button('Retry 4');
      await viewer.sees(/Done: 4 of 4 jobs/u);
      await until('they have been tried again', async () => {
        const { items } = await mill.jobs.find({ name: 'charge-card', status: 'failed' });
        return items.length === 4 && items.every((job) => job.history!.length > before);
      });
      await viewer.page.getByRole('link', { name: 'Audit log' }).last().click();
      await viewer.sees(/charge-card/u);
      await viewer.sees('admin');
    });

    it('selects jobs for a bulk action row by row, or all that match', async () => {
      const { mill } = fixture.sample;
      await mill.enqueueMany(Array.from({ length: 5 }, () => ({ name: 'choose', data: {}, delay: '1h' })));
      await using viewer = await fixture.visit();
      await viewer.go('work?kind=jobs&name=choose');
      await until('they are listed', async () => (await rows(viewer)) === 5);
      await viewer.press('j', 'x', 'j', 'x');
      await viewer.sees('Selected: 2');
      await viewer.page
        .getByRole('group', { name: 'Bulk actions' })
        .getByRole('button', { name: 'Cancel' })
        .click();
      await viewer.sees(/2 jobs, selected one by one/u);
      await viewer.button('Cancel 2');
      await viewer.sees(/Done: 2 of 2/u);
      await viewer.page.getByRole('dialog').getByRole('button', { name: 'Close' }).last().click();
      expect(await mill.jobs.count({ name: 'choose', status: 'cancelled' })).toBe(2);
      await viewer.button('Everything that matches');
      await viewer.page
        .getByRole('group', { name: 'Bulk actions' })
        .getByRole('button', { name: 'Remove' })
        .click();
      await viewer.sees(/5 jobs named choose/u);
      await viewer.button('Remove 5');
      await viewer.sees(/Done: 5 of 5/u);
      expect(await mill.jobs.count({ name: 'choose' })).toBe(0);
    });
  });
  describe('names on the overview', () => {
    it('pauses and resumes a job name from the overview, and opens its charts', async () => {
      const { mill } = fixture.sample;
      await using viewer = await fixture.visit();
      await viewer.go('');
      await viewer.button('Pause send-email');
      await until('the name is paused', async () => (await mill.jobs.paused()).includes('send-email'));
      const started: string[] = [];
      mill.on('job:start', ({ job }) => started.push(job.id));
      mill.job('not-paused', () => 'ran');
      const paused = await mill.enqueue('send-email', { to: 'late@example.com' });
      // Enqueued later, so the paused job would have started before it.
      const other = await mill.enqueue('not-paused', {});
      await mill.jobs.result(other.id);
      expect(started).toEqual([other.id]);
      await viewer.button('Resume send-email');
      expect(await mill.jobs.result(paused.id)).toBe('sent');
      expect(await mill.jobs.paused()).not.toContain('send-email');
      await viewer.page.getByRole('link', { name: 'send-email', exact: true }).click();
      await viewer.sees('The charts show');
      expect(viewer.path).toBe('?range=1h&kind=jobs&name=send-email');
      await until('they are drawn', async () => (await viewer.page.locator('.chart canvas').count()) === 4);
    });
  });
}
