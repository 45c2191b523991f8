import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { freshUri } from '../support/stores.js';

const exec = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');

let workshop: string;
let tarball: string;

beforeAll(async () => {
  workshop = await mkdtemp(join(tmpdir(), 'tidemill-quick-start-'));
  await exec(join(root, 'node_modules/.bin/tsdown'), ['--out-dir', join(workshop, 'package/dist')], {
    cwd: root,
  });
  await exec('cp', ['package.json', 'CHANGELOG.md', join(workshop, 'package')], { cwd: root });
  const args = ['pack', '--silent', '--ignore-scripts', '--pack-destination', workshop];
  const { stdout } = await exec('npm', args, { cwd: join(workshop, 'package') });
  tarball = join(workshop, stdout.trim());
}, 300_000);

afterAll(() => rm(workshop, { recursive: true, force: true }));

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
  const folder = await mkdtemp(join(workshop, `${name}-`));
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
