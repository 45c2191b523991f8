import { spawnSync } from 'node:child_process';
import { existsSync, renameSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';

const root = resolve(import.meta.dirname, '../..');
const page = join(root, 'dist/dashboard');

/** Builds the dashboard's page where nobody has yet: a checkout has only its source. Without it the demo runs all the same. */
export function ensurePage(): void {
  if (existsSync(join(page, 'index.html'))) return;
  console.log("Building the dashboard's page, once …");
  // Under another name first: a page that is half there must not be served.
  const draft = `${page}.draft-${process.pid}`;
  const args = [
    'run',
    '--silent',
    'build',
    '--workspace',
    'dashboard',
    '--',
    '--outDir',
    draft,
    '--emptyOutDir',
  ];
  const { status, stderr } = spawnSync('npm', args, { cwd: root, encoding: 'utf8' });
  if (status !== 0) {
    console.error(`The page was not built:\n${stderr}`);
    return;
  }
  try {
    renameSync(draft, page);
  } catch {
    // Somebody else was faster.
    rmSync(draft, { recursive: true, force: true });
  }
}
