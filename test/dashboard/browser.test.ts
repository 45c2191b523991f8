import { startChromium, type Browser } from '@tidemill/servers';
import { afterAll, beforeAll, describe } from 'vitest';
import { actionFacts } from './facts/actions.js';
import { detailFacts } from './facts/detail.js';
import { keyboardFacts } from './facts/keyboard.js';
import { listFacts } from './facts/list.js';
import { pageFacts } from './facts/pages.js';
import { taskFacts } from './facts/tasks.js';
import { viewerFacts } from './facts/viewers.js';
import type { Ground } from './ground.js';
import { serve, stage, type Served, type Stage } from './stage.js';
import { Visit } from './visit.js';

let browser: Browser;
let scene: Stage;
let served: Served;

beforeAll(async () => {
  [browser, scene] = await Promise.all([startChromium(), stage()]);
  served = await serve(scene.mill);
});

afterAll(async () => {
  scene.release();
  await browser.close();
  await served[Symbol.asyncDispose]();
  await scene.mill.stop({ timeout: 0 });
});

const ground: Ground = {
  get scene() {
    return scene;
  },
  get url() {
    return served.url;
  },
  cut: () => served.cut(),
  visit: (options = {}) => Visit.begin(browser, { url: served.url, viewer: 'admin', ...options }),
};

// In one file, so that one browser serves them all.
describe('the dashboard in a browser', () => {
  pageFacts(ground);
  listFacts(ground);
  detailFacts(ground);
  actionFacts(ground);
  taskFacts(ground);
  keyboardFacts(ground);
  viewerFacts(ground);
});
