import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { fetchPackages } from '../../scripts/fetch.mjs';
import { tidemill } from '../cli/terminal.js';
import { callsOf } from '../support/calls.js';
import { compilers } from '../support/compilers.js';
import { fencesOf, linesToWrite } from '../support/fences.js';
import { until } from '../support/mills.js';
import { packed } from '../support/packed.js';
import { freshUri } from '../support/stores.js';

const exec = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');

let temporary: string;
let tarball: string;
let folderOfPackage: string;

beforeAll(async () => {
  temporary = await mkdtemp(join(tmpdir(), 'tidemill-quick-start-'));
  const [pack] = await Promise.all([packed(), fetchPackages('test/tools')]);
  ({ tarball, folder: folderOfPackage } = pack);
}, 600_000);

afterAll(() => rm(temporary, { recursive: true, force: true }));

/** Files are written, commands go to one shell, in the order of the page. */
async function follow(name: string, env: NodeJS.ProcessEnv): Promise<string> {
  const page = await readFile(join(root, 'docs', `quick-start-${name}.md`), 'utf8');
  const folder = await mkdtemp(join(temporary, `${name}-`));
  const commands: string[] = ['set -e', 'export npm_config_audit=false npm_config_fund=false'];
  for (const [index, { language, file, text }] of fencesOf(page).entries()) {
    if (language === 'sh') commands.push(text);
    else {
      const source = join(folder, `${String(index)}.txt`);
      await writeFile(source, text);
      commands.push(`cp ${source} ${file ?? ''}`);
    }
  }
  // The local package stands in for the one of the registry.
  const script = commands.join('\n').replace('npm install tidemill ', `npm install ${tarball} `);
  const { stdout } = await exec('bash', ['-c', script], { cwd: folder, env: { ...process.env, ...env } });
  return stdout;
}

it.each([
  ['embedded', () => ({})],
  ['postgres', () => ({ DATABASE_URL: inject('postgresUrl') })],
  ['mongodb', () => ({ MONGODB_URI: freshUri() })],
] as const)(
  'the quick start for %s works, command by command',
  async (name, env) => {
    expect(await follow(name, env())).toContain('sent to ada@example.com');
  },
  300_000,
);

/** As after `npm install`: the package as it was built here, and what else the starter depends on. */
async function linkPackages(folder: string): Promise<void> {
  const modules = join(folder, 'node_modules');
  await mkdir(modules);
  const built = join(temporary, 'package');
  if (!existsSync(built)) {
    // A copy, because of the link: it would give other tests drivers that they must do without.
    await cp(folderOfPackage, built, { recursive: true });
    await symlink(join(root, 'node_modules'), join(built, 'node_modules'));
  }
  await symlink(built, join(modules, 'tidemill'));
  for (const name of [
    '.bin',
    '@electric-sql',
    '@types',
    'mongodb',
    'pg',
    'tsx',
    'typescript',
    'undici-types',
  ])
    await symlink(join(root, 'node_modules', name), join(modules, name));
}

/** As `tidemill init` writes them: strict, and a little more. */
const COMPILER_OPTIONS = {
  target: 'es2022',
  lib: ['es2023', 'esnext.disposable'],
  module: 'nodenext',
  types: ['node'],
  strict: true,
  noUncheckedIndexedAccess: true,
  verbatimModuleSyntax: true,
  skipLibCheck: true,
  noEmit: true,
};

/** Pages for users of libraries that `tidemill/compat` stands in for. */
const COMPAT_PAGES = ['docs/from-mongodb-cron.md', 'docs/from-monque.md'];

/** The pages whose code is meant to be pasted. */
async function pagesToPaste(): Promise<readonly string[]> {
  const docs = await readdir(join(root, 'docs'));
  const guides = await readdir(join(root, 'docs/guides'));
  return [
    ...docs.filter((name) => name.startsWith('quick-start-')).map((name) => join('docs', name)),
    ...guides.map((name) => join('docs/guides', name)),
    'docs/flow-control.md',
    ...COMPAT_PAGES,
    'site/home.md',
  ];
}

/** Writes each page's code into a folder of its own, and one for each tab if the page has tabs. */
async function pastePages(): Promise<string> {
  const folder = await mkdtemp(join(temporary, 'pages-'));
  await writeFile(join(folder, 'package.json'), JSON.stringify({ type: 'module' }));
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: COMPILER_OPTIONS }));
  await linkPackages(folder);
  for (const page of await pagesToPaste()) {
    const fences = fencesOf(await readFile(join(root, page), 'utf8')).filter(
      ({ language }) => language === 'ts',
    );
    const tabs = new Set(fences.map(({ tab }) => tab).filter((tab) => tab !== undefined));
    for (const shown of tabs.size === 0 ? ['all'] : tabs) {
      const place = join(folder, basename(page, '.md'), shown);
      await mkdir(place, { recursive: true });
      for (const { file, tab, text } of fences) {
        // The home page also has fragments, which name no file and are in no tab.
        if ((tab ?? shown) !== shown || (page === 'site/home.md' && tab === undefined)) continue;
        if (file === undefined && page !== 'site/home.md')
          throw new Error(`${page} does not name the file of\n${text}`);
        await writeFile(join(place, file ?? 'home.ts'), text);
      }
    }
  }
  for (const page of PAGES_WITH_CALLS) {
    const place = join(folder, page);
    await mkdir(place);
    await writeFile(join(place, 'calls.ts'), callsOf(await readFile(join(root, `docs/${page}.md`), 'utf8')));
  }
  for (const page of COMPAT_PAGES) {
    const lines = linesToWrite(await readFile(join(root, page), 'utf8'));
    expect(lines.length).toBeGreaterThan(10);
    for (const [index, line] of lines.entries())
      await writeFile(join(folder, basename(page, '.md'), `line-${String(index)}.ts`), line);
  }
  return folder;
}

/** What users of another library write here, row by row. */
const PAGES_WITH_CALLS = ['from-agenda', 'from-pulse', 'from-pg-boss', 'from-graphile-worker'];

// The oldest and the newest; the starters are checked by the one between.
it.each(['TypeScript 5.9', 'TypeScript 7'] as const)(
  'the code of every quick start, guide and table of calls compiles strictly with %s, as pasted',
  async (name) => {
    const folder = await pastePages();
    const tsc = join(root, compilers[name], 'bin/tsc');
    const { stdout } = await exec(process.execPath, [tsc, '-p', folder, '--listFiles']).catch(
      (error: unknown) => error as { stdout: string },
    );
    const lines = stdout.trim().split('\n');
    expect(lines.filter((line) => !line.startsWith('/'))).toEqual([]);
    for (const file of [
      'quick-start-postgres/all/order.ts',
      'exactly-once/PostgreSQL/charge.ts',
      'from-agenda/calls.ts',
    ])
      expect(lines.filter((line) => line.endsWith(file))).toHaveLength(1);
  },
  300_000,
);

it('the tests of the guide to testing pass, as pasted', async () => {
  const folder = await pastePages();
  const file = join(folder, 'test-your-jobs/all/onboarding.test.ts');
  const { stdout } = await exec(process.execPath, ['--import', 'tsx', '--test', file], { cwd: folder });
  expect(stdout).toMatch(/pass 2\b/u);
}, 300_000);

/** Starts the application, enqueues a job by HTTP, and returns what the job's page shows once it has ended. */
async function runStarter(folder: string, env: NodeJS.ProcessEnv): Promise<string> {
  const { scripts } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as {
    scripts: { start: string };
  };
  const [, ...args] = scripts.start.split(' ');
  const child = spawn(process.execPath, args, {
    cwd: folder,
    env: { ...process.env, ...env, PORT: '0' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit');
  try {
    let out = '';
    child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
    const base = await until('it serves', () => out.includes('/emails') && /http:[\w/:]+\d/u.exec(out)?.[0]);
    const answer = await fetch(`${base}/emails?to=grace@example.com`, { method: 'POST' });
    const { id } = (await answer.json()) as { id: string };
    const detail = `${base}/tidemill/api/work/jobs/${Buffer.from(id).toString('base64url')}`;
    return await until('the job has ended', async () => {
      const job = (await (await fetch(detail)).json()) as { status: string; result?: string };
      return job.status === 'completed' && job.result;
    });
  } finally {
    child.kill('SIGTERM');
    await ended;
  }
}

it.each([
  ['embedded', () => ({})],
  ['postgres', () => ({ DATABASE_URL: inject('postgresUrl') })],
  ['mongodb', () => ({ MONGODB_URI: freshUri() })],
] as const)(
  'the starter of `tidemill init` for %s type-checks strictly, passes its test and runs its job',
  async (name, env) => {
    const folder = await mkdtemp(join(temporary, `starter-${name}-`));
    await tidemill(['init', folder, '--store', name]);
    await linkPackages(folder);
    const { stdout } = await exec('npm', ['run', 'types'], { cwd: folder });
    expect(stdout).not.toContain('error');
    await exec('npm', ['test'], { cwd: folder });
    expect(await runStarter(folder, env())).toBe('sent "Welcome" to grace@example.com');
  },
  300_000,
);
