/** Runs an application of this folder in a process of its own, as its users would have installed it. */
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, symlink, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { transformSync } from 'esbuild';
import { inject } from 'vitest';
import { fetchPackages } from '../../../scripts/fetch.mjs';
import { packed } from '../../support/packed.js';

const root = resolve(import.meta.dirname, '../../..');
const originals = join(root, 'test/originals/node_modules');

async function write(name: string, edit: (source: string) => string): Promise<string> {
  const folder = await mkdtemp(join(inject('scratch'), `app-${name}-`));
  const source = await readFile(join(import.meta.dirname, `${name}.ts`), 'utf8');
  await writeFile(join(folder, 'package.json'), JSON.stringify({ type: 'module' }));
  await writeFile(join(folder, 'main.js'), transformSync(edit(source), { loader: 'ts' }).code);
  return folder;
}

async function run(folder: string, uri: string, given: Record<string, string> = {}): Promise<string> {
  const env = { ...process.env, ...given, MONGODB_URI: uri };
  const { stdout } = await promisify(execFile)(process.execPath, ['main.js'], { cwd: folder, env });
  return stdout;
}

/** What the application prints with the original library. The import of our entry is the only line that changes. */
export async function runOriginal(
  name: string,
  uri: string,
  given: Record<string, string> = {},
): Promise<string> {
  await fetchPackages('test/originals');
  const entry = `'tidemill/compat/${name}'`;
  const folder = await write(name, (source) => {
    if (source.split(entry).length !== 2) throw new Error(`${name}.ts must import ${entry} once`);
    return source.replace(entry, `'${name}'`);
  });
  await symlink(originals, join(folder, 'node_modules'));
  return run(folder, uri, given);
}

/** What it prints with the packed package, and the same driver. */
export async function runOurs(name: string, uri: string): Promise<string> {
  const [{ folder: built }] = await Promise.all([packed(), fetchPackages('test/originals')]);
  const { dependencies } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>;
  };
  const folder = await write(name, (source) => source);
  await cp(built, join(folder, 'node_modules/tidemill'), { recursive: true });
  const links = Object.keys(dependencies).map((each) => [each, join(root, 'node_modules', each)] as const);
  for (const [each, target] of [...links, ['mongodb', join(originals, 'mongodb')] as const]) {
    const link = join(folder, 'node_modules', each);
    await mkdir(dirname(link), { recursive: true });
    await symlink(target, link);
  }
  return run(folder, uri);
}
