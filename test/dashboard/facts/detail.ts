import { describe, expect, it } from 'vitest';
import { until } from '../../support/mills.js';
import type { BrowserFixture } from '../browser-fixture.js';

export function detailFacts(fixture: BrowserFixture): void {
  describe('detail page', () => {
    it('the detail page says why a job is not running', async () => {
      await using viewer = await fixture.visit();
      await viewer.go('work?kind=jobs&name=nobody-runs-this');
      await viewer.page.getByRole('link', { name: /nobody-runs-this/u }).click();
      await viewer.sees('Why is this not running?');
      await viewer.sees(/no live instance|nobody runs|No instance/iu);
    });

    it('the detail page shows progress, log, attempts, error and stack', async () => {
      await using viewer = await fixture.visit();
      await viewer.go('work?kind=jobs&name=import-stock');
      await viewer.page.getByRole('link', { name: /import-stock/u }).click();
      await viewer.sees('40 %');
      await viewer.sees('reading the file');
      await viewer.sees('stock.csv');
      await viewer.go('work?kind=jobs&name=charge-card&error=4001');
      await viewer.page.getByRole('link', { name: /charge-card/u }).click();
      await viewer.sees('attempt 1');
      await viewer.page.getByLabel('Stack').first().waitFor();
      expect(await viewer.barriers()).toEqual([]);
    });

    it('the detail page shows hostile data as plain text and redacts secrets', async () => {
      await using viewer = await fixture.visit();
      await viewer.go('work?kind=jobs&name=evil');
      await viewer.page.getByRole('link', { name: /evil/u }).click();
      await viewer.sees('[redacted]');
      await viewer.page.getByText('onerror').first().waitFor();
      expect(await viewer.page.locator('main img, main script').count()).toBe(0);
      expect(await viewer.ask('window.hacked')).toBeUndefined();
      await viewer.go('failures');
      await viewer.sees('evil');
      expect(await viewer.ask('window.hacked')).toBeUndefined();
    });

    it('is retried with a payload that was corrected in the editor, and keeps what is hidden', async () => {
      const { mill } = fixture.sample;
      const { id } = await mill.enqueue('edited', { to: 'nobody', password: 'pw' }, { delay: '1h' });
      await mill.jobs.cancel(id);
      await using viewer = await fixture.visit();
      await viewer.go('work?kind=jobs&name=edited');
      await viewer.page.getByRole('link', { name: /edited/u }).click();
      await viewer.button('Edit and retry');
      const editor = viewer.page.getByLabel('Payload, as JSON');
      const text = await editor.inputValue();
      await editor.fill(text.slice(0, -1));
      await viewer.sees('Invalid JSON');
      expect(await viewer.barriers()).toEqual([]);
      await editor.fill(text.replace('nobody', 'ada'));
      await viewer.page.getByRole('dialog').getByRole('button', { name: 'Retry' }).click();
      await until('it waits again', async () => (await mill.jobs.get(id))?.status === 'pending');
      expect((await mill.jobs.get(id))?.data).toEqual({ to: 'ada', password: 'pw' });
      await viewer.go('audit');
      await viewer.sees(/with a corrected payload/u);
      await mill.jobs.remove(id);
    });

    it('cancels, retries and removes a job with the buttons of its detail page', async () => {
      const { mill } = fixture.sample;
      const { id } = await mill.enqueue('one-by-one', {}, { delay: '1h' });
      await using viewer = await fixture.visit();
      await viewer.go('work?kind=jobs&name=one-by-one');
      await viewer.page.getByRole('link', { name: /one-by-one/u }).click();
      await viewer.button(/^Cancel/u);
      await viewer.sees(/A pending job is cancelled at once/u);
      await viewer.page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
      await until('it is cancelled', async () => (await mill.jobs.get(id))?.status === 'cancelled');
      await viewer.page.getByRole('status').getByText(/./u).first().waitFor();
      await viewer.button(/^Retry/u);
      await until('it waits again', async () => (await mill.jobs.get(id))?.status === 'pending');
      await viewer.button(/^Remove/u);
      await viewer.page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
      await until('it is gone', async () => (await mill.jobs.get(id)) === undefined);
      await viewer.sees('Nothing matches');
    });
  });
}
