import { execFile } from 'node:child_process';
import { cp, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { inject } from 'vitest';
import { until } from './mills.js';

const exec = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');

/** The package as npm would publish it. */
export interface Packed {
  readonly tarball: string;
  /** The unpacked tarball. */
  readonly folder: string;
  /** What was built, with the maps that the package leaves out. */
  readonly dist: string;
  /** Bytes of the tarball, and of its files. */
  readonly size: number;
  readonly unpackedSize: number;
}

/** What `npm pack --json` says of a package, as far as it is used here. */
interface Report {
  readonly filename: string;
  readonly size: number;
  readonly unpackedSize: number;
}

/** Builds and packs the package once for all test files of a run: the first one does it, the others wait. */
export async function packed(): Promise<Packed> {
  const workshop = join(inject('scratch'), 'packed');
  const done = join(workshop, 'done.json');
  const mine = await mkdir(workshop).then(
    () => true,
    () => false,
  );
  if (mine) await note(done, await make(workshop).catch((error: unknown) => ({ failed: String(error) })));
  const answer = await until(
    'the package is packed',
    () => readFile(done, 'utf8').catch(() => false as const),
    600_000,
  );
  const found = JSON.parse(answer) as Packed | { readonly failed: string };
  if ('failed' in found) throw new Error(`The package could not be packed: ${found.failed}`);
  return found;
}

/** Written under another name first: whoever waits must not read half of it. */
async function note(file: string, answer: unknown): Promise<void> {
  await writeFile(`${file}.part`, JSON.stringify(answer));
  await rename(`${file}.part`, file);
}

async function make(workshop: string): Promise<Packed> {
  const staged = join(workshop, 'staged');
  const paths = ['package.json', 'README.md', 'LICENSE', 'SECURITY.md', 'grafana', 'privileges'];
  // The global setup has built the page; the script makes the README of the package.
  for (const path of [...paths, 'scripts/package-readme.mjs', 'dist/dashboard'])
    await cp(join(root, path), join(staged, path), { recursive: true });
  const args = ['--out-dir', join(staged, 'dist'), '--no-clean'];
  await exec(join(root, 'node_modules/.bin/tsdown'), args, { cwd: root });
  const pack = ['pack', '--json', '--silent', '--pack-destination', workshop];
  const { stdout } = await exec('npm', pack, { cwd: staged });
  const [{ filename, size, unpackedSize }] = JSON.parse(stdout) as [Report];
  const tarball = join(workshop, filename);
  await exec('tar', ['-xzf', tarball, '-C', workshop]);
  return { tarball, folder: join(workshop, 'package'), dist: join(staged, 'dist'), size, unpackedSize };
}
