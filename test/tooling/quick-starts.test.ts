import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { tidemill } from '../cli/terminal.js';
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
  ({ tarball, folder: folderOfPackage } = await packed());
}, 600_000);

afterAll(() => rm(temporary, { recursive: true, force: true }));

interface Fence {
  readonly language: string;
  /** The last file that the text before it named. */
  readonly file: string | undefined;
  readonly text: string;
}

function fencesOf(page: string): Fence[] {
  const parts = page.split(/^```/mu);
  return parts.flatMap((part, index) => {
    if (index % 2 === 0) return [];
    const [language = '', ...lines] = part.split('\n');
    const named = [...(parts[index - 1] ?? '').matchAll(/`([\w-]+\.js)`/gu)].at(-1)?.[1];
    return [{ language, file: named, text: lines.join('\n') }];
  });
}

/** Files are written, commands go to one shell, in the order of the page. */
async function follow(name: string, env: NodeJS.ProcessEnv): Promise<string> {
  const page = await readFile(join(root, 'docs', `quick-start-${name}.md`), 'utf8');
  const folder = await mkdtemp(join(temporary, `${name}-`));
  const commands: string[] = ['set -e', 'export npm_config_audit=false npm_config_fund=false'];
  for (const [index, { language, file, text }] of fencesOf(page).entries()) {
    if (language === 'sh') commands.push(text);
    else {
      const source = join(folder, `${String(index)}.js`);
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
