import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it } from 'vitest';
import { serveDashboard } from '../../../src/cli/serve/serve.js';
import { until } from '../../support/mills.js';
import type { BrowserFixture } from '../browser-fixture.js';
import { rows } from '../visit.js';

export function viewerFacts(fixture: BrowserFixture): void {
  describe('viewers of the dashboard', () => {
    it('a viewer who is not signed in sees no work', async () => {
      await using viewer = await fixture.visit({ viewer: undefined as never, allow: /401/u });
      await viewer.go('work?kind=jobs');
      await viewer.sees(/not signed in/u);
      expect(await viewer.page.getByText('send-email').count()).toBe(0);
    });

    it('a viewer with only the view right sees neither payloads nor buttons', async () => {
      await using viewer = await fixture.visit({ viewer: 'watcher' });
      await viewer.go('work?kind=jobs&name=import-stock');
      await until('it is listed', async () => (await rows(viewer)) === 1);
      expect(await viewer.page.getByRole('group', { name: 'Bulk actions' }).count()).toBe(0);
      expect(await viewer.page.getByRole('button', { name: 'Payload' }).count()).toBe(0);
      expect(await viewer.page.getByRole('searchbox').count()).toBe(0);
      await viewer.page.getByRole('link', { name: /import-stock/u }).click();
      await viewer.sees(/You cannot see payloads/u);
      expect(await viewer.page.getByText('stock.csv').count()).toBe(0);
      expect(await viewer.page.getByRole('group', { name: 'Actions' }).count()).toBe(0);
      await viewer.go('schedules');
      await viewer.sees('Europe/Prague');
      expect(await viewer.page.getByRole('button', { name: /Run now/u }).count()).toBe(0);
    });

    it('a viewer whose live stream is refused sees the reason and the work', async () => {
      await using viewer = await fixture.visit({ allow: /429/u });
      const error = { code: 'streams', message: 'You have reached the limit of live pages per viewer.' };
      await viewer.page.route('**/api/live?*', (route) => route.fulfill({ status: 429, json: { error } }));
      await viewer.go('work?kind=jobs&name=import-stock');
      await viewer.sees(/limit of live pages/u);
      await until('it is listed', async () => (await rows(viewer)) === 1);
      await viewer.page.unroute('**/api/live?*');
      await until(
        'it follows again',
        async () => (await viewer.page.getByText(/limit of live pages/u).count()) === 0,
      );
    });

    it("a viewer opens the command line's link, and the browser sends its cookie to no other port", async () => {
      const told: (string | undefined)[] = [];
      const stranger = createServer((request, response) => {
        told.push(request.headers.cookie);
        response.end('hello');
      });
      await new Promise<void>((resolve) => stranger.listen(0, '127.0.0.1', resolve));
      const own = await serveDashboard({
        mill: fixture.sample.mill,
        port: 0,
        readOnly: true,
        onError: (error) => {
          throw error;
        },
      });
      await using viewer = await fixture.visit({ viewer: undefined as never, allow: /favicon/u });
      await viewer.page.goto(own.link);
      await viewer.sees('send-email');
      const cookies = await viewer.page.context().cookies();
      expect(cookies.some(({ name }) => name.startsWith('tidemill_'))).toBe(true);
      await viewer.page.goto(`http://127.0.0.1:${String((stranger.address() as AddressInfo).port)}/`);
      expect(told[0] ?? '').not.toContain('tidemill_');
      await own.close();
      stranger.closeAllConnections();
      await new Promise((resolve) => stranger.close(resolve));
    });
  });
}
