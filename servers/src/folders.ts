import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { forgetFolder, watchFolder } from './guard.js';

async function makeFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tidemill-'));
  watchFolder(folder);
  return folder;
}

export async function removeFolder(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  forgetFolder(folder);
}

/** Passes a fresh folder to `start`, and removes it if `start` fails. */
export async function inFreshFolder<T>(start: (folder: string) => Promise<T>): Promise<T> {
  const folder = await makeFolder();
  try {
    return await start(folder);
  } catch (error) {
    await removeFolder(folder);
    throw error;
  }
}
