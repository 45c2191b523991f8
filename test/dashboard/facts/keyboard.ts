import { describe, expect, it } from 'vitest';
import { until } from '../../support/mills.js';
import type { BrowserFixture } from '../browser-fixture.js';
import { rows } from '../visit.js';

export function keyboardFacts(fixture: BrowserFixture): void {
  describe('keyboard navigation', () => {
    it('opens every page, moves through rows and closes dialogs with the keyboard alone', async () => {
      await using viewer = await fixture.visit();
      await viewer.go('');
      await viewer.sees('import-stock');
      await viewer.press('g', 'w');
      await until('the list is open', async () => (await rows(viewer)) > 0);
      await viewer.press('?');
      await viewer.sees('Show these keys');
      expect(await viewer.barriers()).toEqual([]);
      await viewer.press('Escape');
      await until('the help is closed', async () => (await viewer.page.getByRole('dialog').count()) === 0);
      await viewer.press('/');
      await until('the search is focused', async () => {
        const type = await viewer.ask('document.activeElement.type');
        return type === 'search';
      });
      await viewer.press('Escape', 'j', 'j', 'k');
      const first = await viewer.page.locator('[data-opens-row]').first().getAttribute('href');
      await until('the first row is focused', async () => {
        const href = await viewer.ask('document.activeElement.href');
        return href === first;
      });
      await viewer.press('Enter');
      await viewer.sees('Facts');
      for (const [key, seen] of [
        ['s', 'Europe/Prague'],
        ['f', /grouped by error/u],
        ['a', /The log is kept in the store/u],
        ['o', /What runs, how fast/u],
      ] as const) {
        // The second key must follow within 1.5 s, so a slow machine may need several tries.
        await until(`g and ${key} open its page`, async () => {
          await viewer.press('g', key);
          return (await viewer.page.getByText(seen).filter({ visible: true }).count()) > 0;
        });
      }
    });

    it('traps focus in a dialog, restores it afterwards, and offers a skip link', async () => {
      await using viewer = await fixture.visit();
      await viewer.go('schedules');
      await viewer.sees('Europe/Prague');
      await viewer.page.getByRole('button', { name: /^Remove/u }).focus();
      await viewer.press('Enter');
      await viewer.sees('Do nothing');
      // The browser's own controls follow the last button, and then the first one again.
      const inside = `document.activeElement.closest('dialog') !== null || document.activeElement === document.body`;
      for (let i = 0; i < 6; i += 1) {
        await viewer.press('Tab');
        expect(await viewer.ask(inside)).toBe(true);
      }
      await viewer.press('Escape');
      const focused = (): Promise<string | null> =>
        viewer.ask(`document.activeElement.getAttribute('aria-label')`);
      await until('it is given back', async () => (await focused())?.startsWith('Remove the schedule'));
      await viewer.page.reload();
      await viewer.sees('Europe/Prague');
      await viewer.press('Tab', 'Enter');
      expect(await viewer.ask('document.activeElement.id')).toBe('main');
    });
  });
}
