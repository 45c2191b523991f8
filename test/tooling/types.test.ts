import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { fetchPackages } from '../../scripts/fetch.mjs';
import { compilers } from '../support/compilers.js';
import { packed } from '../support/packed.js';

const exec = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');

/** An application beside the packed package, with everything that the examples import. */
let application: string;

beforeAll(async () => {
  const [{ folder }] = await Promise.all([packed(), fetchPackages('test/tools')]);
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

/** What the compiler says about these files, under strict options. */
async function compiled(
  compiler: string,
  include: readonly string[],
  options: Readonly<Record<string, unknown>>,
): Promise<string> {
  const compilerOptions = {
    target: 'es2022',
    lib: ['es2023', 'es2024.string', 'esnext.disposable'],
    types: ['node'],
    strict: true,
    noUncheckedIndexedAccess: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: true,
    noEmit: true,
    // Examples start their servers with the repository's own package, which has scripts.
    allowJs: true,
    // As NestJS asks for.
    experimentalDecorators: true,
    // As in a new Next.js application.
    paths: { '@/*': ['./examples/frameworks/nextjs/*.ts'] },
    ...options,
  };
  const project = join(application, 'tsconfig.json');
  await writeFile(project, JSON.stringify({ compilerOptions, include }));
  const args = [join(root, compiler, 'bin/tsc'), '-p', project];
  const { stdout } = await exec(process.execPath, args).catch(
    (error: unknown) => error as { stdout: string },
  );
  return stdout;
}

const RESOLUTIONS = {
  node16: { module: 'node16', moduleResolution: 'node16' },
  bundler: { module: 'esnext', moduleResolution: 'bundler' },
};

// What the gate compiles elsewhere are the sources; declarations drop, for one, the types of private fields. The slow
// compilers take turns: how a package is found differs between settings, and what its types mean between compilers.
it.each([
  ['TypeScript 5.9', 'node16'],
  ['TypeScript 6', 'bundler'],
  ['TypeScript 7', 'node16'],
  ['TypeScript 7', 'bundler'],
] as const)(
  '%s compiles the examples against the packed package with moduleResolution %s',
  async (compiler, resolution) => {
    expect(await compiled(compilers[compiler], ['examples', 'types'], RESOLUTIONS[resolution])).toBe('');
  },
);

it('TypeScript 5.9 finds every entry of the packed package with the old moduleResolution node', async () => {
  const { exports } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { exports: object };
  const entries = Object.keys(exports).filter((entry) => entry !== './package.json');
  const lines = entries.map((entry, i) => `import * as entry${i} from '${join('tidemill', entry)}';`);
  const uses = entries.map((_, i) => `entry${i} satisfies object;`);
  await writeFile(join(application, 'old.ts'), [...lines, ...uses].join('\n'));
  const options = { module: 'commonjs', moduleResolution: 'node' };
  expect(await compiled(compilers['TypeScript 5.9'], ['old.ts'], options)).toBe('');
});
