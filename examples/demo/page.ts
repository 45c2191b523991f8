import { execFile } from 'node:child_process';
import { existsSync, renameSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';

const root = resolve(import.meta.dirname, '../..');
const page = join(root, 'dist/dashboard');

/**
 * Builds the dashboard's page if it is missing, since a checkout has only its source. The demo opens its database
 * meanwhile, and serves the page as soon as it is there. Without the page the demo runs all the same.
 */
export function ensurePage(): void {
  if (existsSync(join(page, 'index.html'))) return;
  console.log("Building the dashboard's page, once …");
  // Under another name first: a page that is half there must not be served.
  const draft = `${page}.draft-${process.pid}`;
  const args = ['run', '--silent', 'build', '--workspace', 'dashboard'];
  execFile('npm', [...args, '--', '--outDir', draft, '--emptyOutDir'], { cwd: root }, (error, _, stderr) => {
    if (error === null) moveTo(page, draft);
    else console.error(`The page was not built:\n${stderr}`);
  });
}

function moveTo(place: string, draft: string): void {
  try {
    renameSync(draft, place);
  } catch {
    // Another process was faster.
    rmSync(draft, { recursive: true, force: true });
  }
}
