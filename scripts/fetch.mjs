/**
 * What only tests and the documentation need, so that `npm install` stays small. `npm test` fetches all of it:
 *
 *   node scripts/fetch.mjs         everything below that is missing or outdated
 *   node scripts/fetch.mjs site    only this folder
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cp, mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import process, { argv } from 'node:process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');

/** Folders with a lockfile of their own, and what they bring. */
const FOLDERS = {
  'servers/binaries': 'MongoDB, PostgreSQL and Chromium for the tests, about 500 MB',
  'test/tools': 'tools that check the package, about 90 MB',
  'test/originals': 'the libraries that tidemill/compat replaces, about 55 MB',
  site: 'the tools of the documentation, about 150 MB',
};

/** @typedef {keyof typeof FOLDERS} Fetched */

/**
 * Installs the packages of a folder as its lockfile has them, unless they are there.
 * @param {Fetched} name
 */
export async function fetchPackages(name) {
  const folder = join(root, name);
  const lock = await readFile(join(folder, 'package-lock.json'), 'utf8');
  const wanted = createHash('sha256').update(lock).digest('hex');
  const present = await readFile(join(folder, 'node_modules/.fetched'), 'utf8').catch(() => undefined);
  if (present === wanted) return;
  console.error(`Fetching ${FOLDERS[name]}, once …`);
  // Into a folder beside it: another process must never see half of the packages.
  const draft = await mkdtemp(join(folder, '.fetching-'));
  try {
    await install(folder, draft);
    // Where no package is for this platform, npm makes no folder.
    await mkdir(join(draft, 'node_modules'), { recursive: true });
    await writeFile(join(draft, 'node_modules/.fetched'), wanted);
    await replace(join(folder, 'node_modules'), draft);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

/**
 * @param {string} folder
 * @param {string} draft
 */
async function install(folder, draft) {
  for (const file of ['package.json', 'package-lock.json', '.npmrc'])
    await cp(join(folder, file), join(draft, file));
  // Not `npm ci`, which refuses a lockfile without the packages of every other platform.
  const args = ['install', '--prefix', draft, '--include=dev', '--include=optional', '--loglevel=error'];
  await promisify(execFile)('npm', args, { cwd: draft }).catch((/** @type {unknown} */ error) => {
    const { stderr = String(error) } = /** @type {{ stderr?: string }} */ (error);
    const telling = stderr.split('\n').slice(0, 20).join('\n');
    throw new Error(`npm could not install the packages of ${relative(root, folder)}:\n${telling}`);
  });
}

/**
 * @param {string} modules
 * @param {string} draft
 */
async function replace(modules, draft) {
  await rename(modules, join(draft, 'outdated')).catch(ignoreMissing);
  await rename(join(draft, 'node_modules'), modules).catch(ignoreTaken);
}

/** @param {NodeJS.ErrnoException} error */
function ignoreMissing(error) {
  if (error.code !== 'ENOENT') throw error;
}

/**
 * Another process was faster, and has put the same packages there.
 * @param {NodeJS.ErrnoException} error
 */
function ignoreTaken(error) {
  if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
}

/** Fetches everything, or the folders that are named. */
export async function fetchAll(names = Object.keys(FOLDERS)) {
  for (const name of names) {
    if (!(name in FOLDERS))
      throw new Error(`Nothing to fetch for ${name}. The folders are ${Object.keys(FOLDERS).join(', ')}.`);
    await fetchPackages(/** @type {Fetched} */ (name));
  }
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  const named = argv.slice(2);
  await fetchAll(named.length === 0 ? undefined : named).catch((/** @type {unknown} */ error) => {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  });
}
