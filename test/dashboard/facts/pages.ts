import { describe, expect, it } from 'vitest';
import { FatalError, Tidemill } from '../../../src/index.js';
import { memory } from '../../../src/memory/index.js';
import type { BrowserFixture } from '../browser-fixture.js';
import { serve } from '../sample-mill.js';
import type { Visit } from '../visit.js';

/** Each page, with text that proves it shows its data. */
const PAGES: readonly (readonly [path: string, seen: string | RegExp])[] = [
  ['', 'import-stock'],
  ['work?kind=jobs', 'later'],
  ['work?kind=documents', 'reminders'],
  ['schedules', 'Europe/Prague'],
  ['limits', 'mail-server'],
  ['failures', /Card .* was declined/u],
  ['audit', /No actions yet|When/u],
];

/** The browser's own measure of layout shift since the page was loaded. */
const jumps = (viewer: Visit): Promise<number> =>
  viewer.ask(`new Promise((resolve) => {
    let sum = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value;
    }).observe({ type: 'layout-shift', buffered: true });
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(sum)));
  })`);

export function pageFacts(fixture: BrowserFixture): void {
  describe('every page of the dashboard', () => {
    it.each([
      ['in light', false, 1280],
      ['in dark', true, 1280],
      ['on a narrow screen', false, 390],
    ])(
      'every page shows its data %s without axe violations, layout shift or horizontal scrolling',
      async (_, dark, width) => {
        await using viewer = await fixture.visit({ dark, width });
        for (const [path, seen] of PAGES) {
          await viewer.go(path);
          await viewer.sees(seen);
          expect(await viewer.barriers(), path).toEqual([]);
          const sideways = 'document.documentElement.scrollWidth > innerWidth';
          expect(await viewer.ask(sideways), path).toBe(false);
          expect(await jumps(viewer), path).toBeLessThan(0.05);
        }
      },
    );

    it('every page says what to do next when there is no data yet', async () => {
      await using served = await serve(new Tidemill({ store: memory(), logger: false }));
      await using viewer = await fixture.visit({ url: served.url });
      for (const [path, seen] of [
        ['', 'Nothing has run here yet'],
        ['', 'No instance is running'],
        ['work', 'There are no jobs yet'],
        ['schedules', 'There are no schedules yet'],
        ['limits', 'There are no limits yet'],
        ['failures', 'Nothing has failed for good'],
        ['audit', 'No actions yet'],
        ['nowhere', 'Page not found'],
      ] as const) {
        await viewer.go(path);
        await viewer.sees(seen);
      }
      expect(await viewer.barriers()).toEqual([]);
    });

    it('does not call all well while a tenth of the work fails for good', async () => {
      await using mill = new Tidemill({
        store: memory(),
        logger: false,
        monitoring: { pushIntervalMs: 100 },
      });
      mill.job('charge-card', () => Promise.reject(new FatalError('declined')));
      await mill.start();
      await mill.enqueueMany(Array.from({ length: 10 }, () => ({ name: 'charge-card', data: {} })));
      await using served = await serve(mill);
      await using viewer = await fixture.visit({ url: served.url });
      await viewer.go('');
      await viewer.sees(/100 % of the work that ended .* \(10 of 10\), 10 of them jobs charge-card/u);
      expect(await viewer.page.getByText('Healthy.').count()).toBe(0);
    });

    it('every page requests only the server it came from', async () => {
      await using viewer = await fixture.visit();
      const hosts = new Set<string>();
      viewer.page.on('request', (request) => hosts.add(new URL(request.url()).host));
      for (const [path, seen] of PAGES) {
        await viewer.go(path);
        await viewer.sees(seen);
      }
      expect([...hosts]).toEqual([new URL(fixture.url).host]);
    });
  });
  describe('color theme', () => {
    it('the color theme follows the system until the viewer chooses one, which is remembered', async () => {
      await using viewer = await fixture.visit({ dark: true });
      const shown = (): Promise<string> => viewer.ask('document.documentElement.dataset.theme');
      await viewer.go('');
      await viewer.sees('import-stock');
      expect(await shown()).toBe('dark');
      const dark = await viewer.ask('getComputedStyle(document.body).backgroundColor');
      await viewer.button('Colours: System');
      await viewer.sees('Light');
      expect(await shown()).toBe('light');
      await viewer.page.reload();
      await viewer.sees('import-stock');
      expect(await shown()).toBe('light');
      expect(await viewer.ask('getComputedStyle(document.body).backgroundColor')).not.toBe(dark);
    });
  });
}
