/** Applications that were written for another library: they run on it, and, with one import changed, on the entry here. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { buildSync } from 'esbuild';

const root = resolve(import.meta.dirname, '../..');
const cache = join(root, 'node_modules/.cache/tidemill-tests');

/** Where the entry and the library that it stands in for are. */
export interface Pair {
  /** The module that the application imports, such as `tidemill/compat/mongodash`. */
  readonly entry: string;
  /** The file of the original, below test/originals/node_modules. */
  readonly original: string;
}

/** Bundles an application for one of both: only the module that it imports differs. */
function build(script: URL, { entry, original }: Pair, which: 'original' | 'ours'): string {
  const file = fileURLToPath(script);
  const target =
    which === 'original'
      ? pathToFileURL(join(root, 'test/originals/node_modules', original)).href
      : join(root, 'src', entry.replace('tidemill/', ''), 'index.ts');
  const contents = readFileSync(file, 'utf8').replaceAll(`'${entry}'`, `'${target}'`);
  const { outputFiles } = buildSync({
    stdin: { contents, loader: 'ts', resolveDir: dirname(file), sourcefile: file },
    bundle: true,
    packages: 'external',
    external: ['file:*'],
    platform: 'node',
    format: 'esm',
    target: 'node20',
    write: false,
  });
  const text = outputFiles[0]?.text ?? '';
  const hash = createHash('sha256').update(text).digest('hex').slice(0, 16);
  const bundle = join(cache, `${basename(file, '.ts')}-${which}-${hash}.mjs`);
  mkdirSync(cache, { recursive: true });
  writeFileSync(bundle, text);
  return bundle;
}

/** Runs an application in a process of its own, and returns the JSON of its last line. */
export async function runOn(
  which: 'original' | 'ours',
  script: URL,
  pair: Pair,
  args: readonly string[],
): Promise<Record<string, unknown>> {
  const child = spawn(process.execPath, [build(script, pair, which), ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const out: Buffer[] = [];
  const problems: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => out.push(chunk));
  child.stderr.on('data', (chunk: Buffer) => problems.push(chunk));
  const code = await new Promise((done) => child.once('close', done));
  const last = Buffer.concat(out).toString().trim().split('\n').at(-1) ?? '';
  if (code !== 0 || !last.startsWith('{'))
    throw new Error(`${which} ended with ${String(code)}: ${last}\n${Buffer.concat(problems).toString()}`);
  return JSON.parse(last) as Record<string, unknown>;
}
