import { describe, expect, it } from 'vitest';
import { until } from '../../support/mills.js';
import type { BrowserFixture } from '../browser-fixture.js';
import { EVIL } from '../sample-mill.js';
import { rows } from '../visit.js';

export function listFacts(fixture: BrowserFixture): void {
  describe('work list', () => {
    it('the work list keeps its filter in the URL through a reload and the back button', async () => {
      await using viewer = await fixture.visit();
      await viewer.go('work');
      await viewer.button('failed');
      await viewer.sees('status: failed');
      await viewer.page.getByLabel('Name').selectOption('charge-card');
      await viewer.page.getByLabel('Error text').fill('Card 4002');
      await until('one row is left', async () => (await rows(viewer)) === 1);
      expect(viewer.path).toBe('work?kind=jobs&name=charge-card&status=failed&error=Card 4002');
      await viewer.page.reload();
      await viewer.sees('Card 4002 was declined');
      expect(await rows(viewer)).toBe(1);
      await viewer.page.goBack();
      await until('the name is off again', () => viewer.path === 'work?kind=jobs&status=failed');
    });

    it('the work list filters by a payload field and by time', async () => {
      await using viewer = await fixture.visit();
      await viewer.go('work?kind=jobs');
      await viewer.button('Payload');
      await viewer.page.getByLabel('Path').fill('n');
      await viewer.page.getByLabel('Value').fill('42');
      await viewer.button('Add');
      await until('one row is left', async () => (await rows(viewer)) === 1);
      expect(viewer.path).toContain('field=n:42');
      await viewer.button(/^Time/u);
      await viewer.button('15 min');
      await viewer.sees(/created from/u);
      await until('it is still there', async () => (await rows(viewer)) === 1);
    });

    it('the work list pages forwards and backwards by cursor', async () => {
      await using viewer = await fixture.visit();
      await viewer.go('work?kind=jobs&name=later');
      await viewer.sees('50 rows');
      await viewer.page.getByRole('link', { name: 'Next' }).click();
      await viewer.sees('10 rows');
      await viewer.page.getByRole('link', { name: 'Previous' }).click();
      await viewer.sees('50 rows');
    });

    it('the work list updates live, stops while paused, and then shows its age', async () => {
      await using viewer = await fixture.visit();
      await viewer.go('work?kind=jobs&name=live');
      await viewer.sees('Nothing matches');
      await fixture.sample.mill.enqueue('live', {}, { delay: '1h' });
      await until('the first one shows up', async () => (await rows(viewer)) === 1);
      await viewer.button('Pause');
      await viewer.sees('Paused');
      await viewer.sees(/as it was/u);
      await fixture.sample.mill.enqueue('live', {}, { delay: '1h' });
      await viewer.sees(/as it was \d+ (s|min) ago/u);
      expect(await rows(viewer)).toBe(1);
      await viewer.button('Resume');
      await until('the second one shows up', async () => (await rows(viewer)) === 2);
    });

    it('the work list reconnects by itself after losing its connection', async () => {
      await using viewer = await fixture.visit({ allow: /ERR_/u });
      await viewer.go('work?kind=jobs&name=cut');
      await viewer.sees('Nothing matches');
      await viewer.sees('Live');
      fixture.cut();
      await viewer.sees('Reconnecting');
      await fixture.sample.mill.enqueue('cut', {}, { delay: '1h' });
      await until('it shows up', async () => (await rows(viewer)) === 1);
      await viewer.sees('Live');
    });

    it('the work list sends no request in a background tab, and catches up once it is visible', async () => {
      await using viewer = await fixture.visit();
      await viewer.go('work?kind=jobs&name=hidden');
      await viewer.sees('Nothing matches');
      await viewer.sees('Live');
      await viewer.look('hidden');
      const asked: string[] = [];
      viewer.page.on('request', (request) => asked.push(request.url()));
      await fixture.sample.mill.enqueue('hidden', {}, { delay: '1h' });
      // Another viewer sees the job by now.
      await using other = await fixture.visit();
      await other.go('work?kind=jobs&name=hidden');
      await until('another viewer sees it', async () => (await rows(other)) === 1);
      expect(await rows(viewer)).toBe(0);
      expect(asked).toEqual([]);
      await viewer.look('visible');
      await until('it shows up', async () => (await rows(viewer)) === 1);
    });

    it('the work list treats an injected filter as text or rejects it with a message', async () => {
      await using viewer = await fixture.visit({ allow: /400/u });
      const evil = encodeURIComponent(EVIL);
      await viewer.go(`work?kind=jobs&name=${evil}&error=${evil}`);
      await viewer.sees('Nothing matches');
      expect(await viewer.page.getByText(EVIL).count()).toBeGreaterThan(0);
      for (const [query, message] of [
        ['field=$where:1', '"field" must be a path and a value'],
        ['field=a.$ne:1', '"field" must be a path and a value'],
        ['status={"$ne":"x"}', '"status" of jobs must be one of'],
        ["sort=name';--", '"sort" must be one of'],
        ['from={"$gt":""}', '"from" must be a time'],
      ] as const) {
        await viewer.go(`work?kind=jobs&${query}`);
        await viewer.page.getByRole('alert').filter({ hasText: message }).waitFor();
        expect(await rows(viewer)).toBe(0);
      }
      // The page knows no such parameter: it neither filters by it nor sends it.
      const sent: string[] = [];
      viewer.page.on('request', (request) => sent.push(request.url()));
      await viewer.go('work?kind=jobs&status[$ne]=x');
      await viewer.sees('50 rows');
      const toApi = sent.filter((url) => url.includes('/api/'));
      expect(toApi).not.toEqual([]);
      // An address inside an address is encoded twice.
      expect(toApi.filter((url) => /(?:\$|24)ne/u.test(url))).toEqual([]);
      expect(await viewer.ask('window.hacked')).toBeUndefined();
    });
  });
}
