import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { packed } from '../support/packed.js';

const exec = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');

/** An application beside the packed package, with everything that the examples import. */
let application: string;

beforeAll(async () => {
  const { folder } = await packed();
  application = await mkdtemp(join(tmpdir(), 'tidemill-types-'));
  const modules = join(application, 'node_modules');
  await mkdir(modules);
  for (const installed of await readdir(join(root, 'node_modules')))
    await symlink(join(root, 'node_modules', installed), join(modules, installed));
  await cp(folder, join(modules, 'tidemill'), { recursive: true });
  await cp(join(root, 'examples'), join(application, 'examples'), { recursive: true });
  // The demo is the command line of the repository, and imports its sources.
  await rm(join(application, 'examples/demo'), { recursive: true });
  await cp(join(root, 'test/types'), join(application, 'types'), { recursive: true });
  await writeFile(join(application, 'package.json'), JSON.stringify({ type: 'module' }));
}, 600_000);

afterAll(() => rm(application, { recursive: true, force: true }));

/** Every version of TypeScript that is installed: `typescript`, and aliases such as `typescript-5.9`. */
async function compilers(): Promise<readonly string[]> {
  const { devDependencies } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as {
    devDependencies: Record<string, string>;
  };
  return Object.keys(devDependencies).filter((name) => /^typescript(-[\d.]+)?$/u.test(name));
}

const resolutions = [
  { module: 'node16', moduleResolution: 'node16' },
  { module: 'nodenext', moduleResolution: 'nodenext' },
  { module: 'esnext', moduleResolution: 'bundler' },
];

async function compiled(compiler: string, options: Readonly<Record<string, unknown>>): Promise<string> {
  const compilerOptions = {
    target: 'es2022',
    lib: ['es2023', 'es2024.string', 'esnext.disposable'],
    types: ['node'],
    strict: true,
    noUncheckedIndexedAccess: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: true,
    noEmit: true,
    ...options,
  };
  const project = join(application, 'tsconfig.json');
  await writeFile(project, JSON.stringify({ compilerOptions, include: ['examples', 'types'] }));
  const tsc = join(root, 'node_modules', compiler, 'bin/tsc');
  const { stdout } = await exec(process.execPath, [tsc, '-p', project]).catch(
    (error: unknown) => error as { stdout: string },
  );
  return stdout;
}

// What the gate compiles elsewhere are the sources; declarations drop, for one, the types of private fields.
it.each(await compilers())('%s compiles the examples against the packed package', async (compiler) => {
  for (const options of resolutions)
    expect(await compiled(compiler, options), JSON.stringify(options)).toBe('');
});
