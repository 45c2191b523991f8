import { startChromium, type Browser } from '@tidemill/servers';
import { afterAll, beforeAll, describe } from 'vitest';
import { actionFacts } from './facts/actions.js';
import { detailFacts } from './facts/detail.js';
import { keyboardFacts } from './facts/keyboard.js';
import { listFacts } from './facts/list.js';
import { pageFacts } from './facts/pages.js';
import { taskFacts } from './facts/tasks.js';
import { viewerFacts } from './facts/viewers.js';
import type { BrowserFixture } from './browser-fixture.js';
import { serve, sampleMill, type Served, type SampleMill } from './sample-mill.js';
import { Visit } from './visit.js';

let browser: Browser;
let sample: SampleMill;
let served: Served;

beforeAll(async () => {
  [browser, sample] = await Promise.all([startChromium(), sampleMill()]);
  served = await serve(sample.mill);
});

afterAll(async () => {
  sample.release();
  await browser.close();
  await served[Symbol.asyncDispose]();
  await sample.mill.stop({ timeout: 0 });
});

const fixture: BrowserFixture = {
  get sample() {
    return sample;
  },
  get url() {
    return served.url;
  },
  cut: () => served.cut(),
  visit: (options = {}) => Visit.begin(browser, { url: served.url, viewer: 'admin', ...options }),
};

// In one file, so that one browser serves them all.
describe('the dashboard in a browser', () => {
  pageFacts(fixture);
  listFacts(fixture);
  detailFacts(fixture);
  actionFacts(fixture);
  taskFacts(fixture);
  keyboardFacts(fixture);
  viewerFacts(fixture);
});
