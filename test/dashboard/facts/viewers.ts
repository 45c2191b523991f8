import { describe, expect, it } from 'vitest';
import { until } from '../../support/mills.js';
import type { Ground } from '../ground.js';
import { rows } from '../visit.js';

export function viewerFacts(ground: Ground): void {
  describe('a viewer', () => {
    it('whom nobody let in sees nothing of the work', async () => {
      await using viewer = await ground.visit({ viewer: undefined as never, allow: /401/u });
      await viewer.go('work?kind=jobs');
      await viewer.sees(/not signed in/u);
      expect(await viewer.page.getByText('send-email').count()).toBe(0);
    });

    it('who may only watch sees neither data nor buttons', async () => {
      await using viewer = await ground.visit({ viewer: 'watcher' });
      await viewer.go('work?kind=jobs&name=import-stock');
      await until('it is listed', async () => (await rows(viewer)) === 1);
      expect(await viewer.page.getByRole('group', { name: 'Act on many' }).count()).toBe(0);
      expect(await viewer.page.getByRole('button', { name: 'Payload' }).count()).toBe(0);
      await viewer.page.getByRole('link', { name: /import-stock/u }).click();
      await viewer.sees(/are not shown to you/u);
      expect(await viewer.page.getByText('stock.csv').count()).toBe(0);
      expect(await viewer.page.getByRole('group', { name: 'Actions' }).count()).toBe(0);
      await viewer.go('schedules');
      await viewer.sees('Europe/Prague');
      expect(await viewer.page.getByRole('button', { name: /Run now/u }).count()).toBe(0);
    });
  });
}
