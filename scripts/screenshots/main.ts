/**
 * Takes the screenshots of docs/dashboard.md: `npm run screenshots`. scene.ts makes up what they show, on a real
 * mill.
 */
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import { startChromium, startMongo, type Browser, type Page } from '@tidemill/servers';
import { createDashboard, toNodeHandler } from '../../src/dashboard/index.js';
import type { Tidemill } from '../../src/index.js';
import { makeScene } from './scene.js';

const FOLDER = resolve(import.meta.dirname, '../../docs/images');
const WIDTH = 1280;
const HEIGHT = 860;

interface Shot {
  readonly name: string;
  readonly path: string;
  /** A selector that matches once the page has its data. */
  readonly seen: string;
  /** Opens the first row of the list, since ids are not known in advance. */
  readonly open?: boolean;
  readonly height?: number;
}

const SHOTS: readonly Shot[] = [
  { name: 'overview', path: '', seen: '.chart canvas', height: 1290 },
  {
    name: 'work',
    path: 'work?kind=jobs&status=pending&status=processing&status=failed',
    seen: 'table.work tbody tr',
  },
  {
    name: 'detail',
    path: 'work?kind=jobs&name=send-email&status=pending&error=refused',
    seen: '.timeline',
    open: true,
  },
  { name: 'schedules', path: 'schedules', seen: '.runs', height: 620 },
  { name: 'limits', path: 'limits', seen: '.limit-keys', height: 900 },
  { name: 'failures', path: 'failures', seen: '.group', height: 660 },
];

await main();

async function main(): Promise<void> {
  await using mongo = await startMongo();
  const scene = await makeScene(mongo.uri.replace('/?', '/shop?'));
  const server = await listen(scene.mill);
  const browser = await startChromium();
  try {
    await mkdir(FOLDER, { recursive: true });
    const { port } = server.address() as AddressInfo;
    for (const theme of ['light', 'dark'] as const) await shoot(browser, `http://127.0.0.1:${port}/`, theme);
  } finally {
    await browser.close();
    server.closeAllConnections();
    server.close();
    await scene.end();
  }
}

async function listen(mill: Tidemill): Promise<Server> {
  const dashboard = createDashboard({
    mill,
    authorize: () => ({ rights: ['view', 'payload', 'act'], actor: 'ops' }),
  });
  const server = createServer(toNodeHandler(dashboard));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

async function shoot(browser: Browser, url: string, colorScheme: 'light' | 'dark'): Promise<void> {
  const context = await browser.newContext({ colorScheme, reducedMotion: 'reduce' });
  const page = await context.newPage();
  for (const shot of SHOTS) {
    await page.setViewportSize({ width: WIDTH, height: shot.height ?? HEIGHT });
    await page.goto(`${url}${shot.path}`);
    if (shot.open === true) await page.locator('[data-opens-row]').first().click();
    await page.locator(shot.seen).first().waitFor();
    await quiet(page);
    await page.screenshot({ path: resolve(FOLDER, `dashboard-${shot.name}-${colorScheme}.png`) });
  }
  await context.close();
}

/** Waits until the fonts are loaded and the page is live. */
async function quiet(page: Page): Promise<void> {
  await page.locator('.live-live').waitFor();
  await page.evaluate('document.fonts.ready.then(() => undefined)');
}
