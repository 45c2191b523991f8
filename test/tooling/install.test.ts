import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';

const exec = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');
/** Folders that `npm install` leaves out. */
const FETCHED = ['servers/binaries', 'site', 'test/originals', 'test/tools'];

interface Lock {
  readonly packages: Readonly<Record<string, { readonly engines?: { readonly node?: string } }>>;
}

async function lockOf(folder: string): Promise<Lock['packages']> {
  return (JSON.parse(await readFile(join(root, folder, 'package-lock.json'), 'utf8')) as Lock).packages;
}

/** The space that a package takes on disk, without the packages inside it. */
async function sizeOf(folder: string): Promise<number> {
  let size = 0;
  for (const entry of await readdir(folder, { withFileTypes: true }).catch(() => [])) {
    const path = join(folder, entry.name);
    if (entry.isFile()) size += (await stat(path)).blocks * 512;
    else if (entry.isDirectory() && entry.name !== 'node_modules') size += await sizeOf(path);
  }
  return size;
}

it('npm install brings less than 400 MB', async () => {
  // Those of the lockfile only: a working copy may have others, and packages of other platforms are not there.
  const installed = Object.keys(await lockOf('.')).filter((path) => path.includes('node_modules/'));
  let size = 0;
  for (const path of installed) size += await sizeOf(join(root, path));
  expect(size).toBeGreaterThan(100e6);
  expect(size).toBeLessThan(400e6);
});

/** These ask for Node 22 and run on 20 all the same, as the tests of the importers show. */
const NEWER = ['node_modules/graphile-worker', 'node_modules/pg-boss'];

it.each(['.', ...FETCHED])('every package of %s runs on Node 20', async (folder) => {
  const needs = Object.entries(await lockOf(folder)).flatMap(([path, { engines }]) =>
    engines?.node === undefined || NEWER.includes(path) ? [] : [[path, engines.node] as const],
  );
  /** The majors that a range begins with, such as 20, 22 and 24 for `^20.19.0 || ^22.13.0 || >=24`. */
  const majors = (range: string): number[] =>
    range.split('||').map((part) => Number(/\d+/u.exec(part)?.[0] ?? 0));
  expect(needs.length).toBeGreaterThan(0);
  expect(needs.filter(([, range]) => !majors(range).some((major) => major <= 20))).toEqual([]);
});

/** A repository with only the script and a `site` that needs no package. */
async function emptyRepository(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tidemill-fetch-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await cp(join(root, 'scripts/fetch.mjs'), join(folder, 'scripts/fetch.mjs'));
  await mkdir(join(folder, 'site'));
  await cp(join(root, 'site/.npmrc'), join(folder, 'site/.npmrc'));
  await writeFile(join(folder, 'site/package.json'), '{ "name": "site", "private": true }');
  await writeFile(join(folder, 'site/package-lock.json'), lockfile('0.0.1'));
  return folder;
}

const lockfile = (version: string): string =>
  JSON.stringify({ name: 'site', version, lockfileVersion: 3, packages: { '': { name: 'site' } } });

async function fetched(folder: string, ...names: string[]): Promise<string> {
  return (await exec(process.execPath, [join(folder, 'scripts/fetch.mjs'), ...names])).stderr;
}

it('the fetch script installs a folder once, says so, and again when its lockfile changes', async () => {
  const folder = await emptyRepository();
  const line = /^Fetching the tools of the documentation, about \d+ MB, once …\n$/u;
  expect(await fetched(folder, 'site')).toMatch(line);
  expect(await fetched(folder, 'site')).toBe('');
  await writeFile(join(folder, 'site/package-lock.json'), lockfile('0.0.2'));
  expect(await fetched(folder, 'site')).toMatch(line);
  expect((await readdir(join(folder, 'site'))).sort()).toEqual([
    '.npmrc',
    'node_modules',
    'package-lock.json',
    'package.json',
  ]);
});

it('the fetch script names the folders that it knows', async () => {
  await expect(fetched(root, 'elsewhere')).rejects.toMatchObject({
    stderr: expect.stringContaining(
      `The folders are servers/binaries, test/tools, test/originals, site.`,
    ) as string,
  });
});
