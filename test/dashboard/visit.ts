import type { Browser, BrowserContext, Page } from '@tidemill/servers';
import axe from 'axe-core';
import { expect } from 'vitest';
import type { Viewer } from './sample-mill.js';

const LIMIT_MS = 45_000;

export interface VisitOptions {
  readonly url: string;
  readonly viewer?: Viewer;
  readonly dark?: boolean;
  readonly width?: number;
  /** Console errors that the test expects, such as a refused request. */
  readonly allow?: RegExp;
}

/**
 * One viewer's browser. It records everything the browser complains about, including violations of the page's policy.
 */
export class Visit implements AsyncDisposable {
  readonly page: Page;
  readonly #context: BrowserContext;
  readonly #url: string;
  readonly #faults: string[] = [];

  static async begin(browser: Browser, options: VisitOptions): Promise<Visit> {
    const { url, viewer, dark = false, width = 1280 } = options;
    const context = await browser.newContext({
      colorScheme: dark ? 'dark' : 'light',
      viewport: { width, height: 800 },
    });
    context.setDefaultTimeout(LIMIT_MS);
    if (viewer !== undefined) await context.addCookies([{ name: 'viewer', value: viewer, url }]);
    return new Visit(context, await context.newPage(), options);
  }

  private constructor(context: BrowserContext, page: Page, { url, allow }: VisitOptions) {
    this.#context = context;
    this.#url = url;
    this.page = page;
    page.on('console', (message) => {
      const text = message.text();
      if (message.type() === 'error' && allow?.test(text) !== true) this.#faults.push(text);
    });
    page.on('pageerror', (error) => this.#faults.push(String(error)));
  }

  async go(path = ''): Promise<void> {
    await this.page.goto(`${this.#url}${path}`);
  }

  /** The path below the page's own URL. */
  get path(): string {
    return decodeURIComponent(this.page.url().slice(this.#url.length)).replaceAll('+', ' ');
  }

  /** Waits until the page shows this text. */
  async sees(text: string | RegExp): Promise<void> {
    await this.page.getByText(text).filter({ visible: true }).first().waitFor();
  }

  async press(...keys: string[]): Promise<void> {
    for (const key of keys) await this.page.keyboard.press(key);
  }

  async button(name: string | RegExp): Promise<void> {
    await this.page.getByRole('button', { name }).click();
  }

  /** Serious accessibility violations, by rule and place. */
  async barriers(): Promise<string[]> {
    await this.page.evaluate(axe.source);
    const found = await this.ask<axe.AxeResults>(`axe.run(document, { resultTypes: ['violations'] })`);
    return found.violations
      .filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .flatMap(({ id, nodes }) => nodes.map(({ target }) => `${id}: ${target.join(' ')}`));
  }

  /** Acts as if the tab moved to the background or back: a headless browser has no other tab to show. */
  async look(state: 'hidden' | 'visible'): Promise<void> {
    await this.page.evaluate(`
      Object.defineProperty(document, 'visibilityState', { value: '${state}', configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    `);
  }

  ask<T>(expression: string): Promise<T> {
    return this.page.evaluate(expression);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#context.close();
    expect(this.#faults).toEqual([]);
  }
}

/** The number of rows in the work list. */
export const rows = (viewer: Visit): Promise<number> => viewer.page.locator('table.work tbody tr').count();
