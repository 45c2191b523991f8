/**
 * The whole gate; CI runs the same command.
 *
 *   npm run check
 *   npm run check -- --only types,lint
 *   npm run check -- --skip tests,examples
 *
 * Every step runs even if an earlier one failed, so that one run shows everything there is to fix. What `npm install`
 * leaves out (servers, a browser, tools of the documentation) is fetched first.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { constants, setPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { fetchAll } from './fetch.mjs';

const EXAMPLE_LIMIT_MS = 120_000;
/** How many commands run at once; more would only wait for each other. */
const AT_ONCE = 2;
const EXAMPLE_MARK = /^\/\/ runs in: npm run check$/m;

/** @typedef {{ ok: boolean, output: string, note?: string }} Result */
/** @typedef {Record<'numPassedTests' | 'numFailedTests' | 'numPendingTests' | 'numTodoTests', number>} Report */

/** Steps that run beside the tests, which spend much of their time waiting. The others write what the package is made of. */
const BESIDE = [
  'tests',
  'types',
  'lint',
  'format',
  'boundaries',
  'unused',
  'simulate',
  'rights',
  'examples',
  'site',
];

/**
 * In this order, because `exports` checks what `build` wrote.
 * @type {Record<string, () => Promise<Result>>}
 */
const steps = {
  tests: runTests,
  types: () => npmRun('types'),
  lint: () => npmRun('lint'),
  format: () => npmRun('format:check'),
  boundaries: () => npmRun('boundaries'),
  unused: () => npmRun('unused'),
  simulate: () => npmRun('simulate', ['--seeds', '1000', '--minutes', '0.2', '--workers', '2']),
  rights: () => npmRun('test:rights', ['--some']),
  build: () => npmRun('build'),
  exports: () => npmRun('exports'),
  examples: runExamples,
  site: () => npmRun('site'),
};

let passedTests = 0;
await main();

async function main() {
  const chosen = chooseSteps();
  await fetchAll();
  const startedAt = performance.now();
  /** @type {string[]} */
  const failed = [];
  /** @param {string} name */
  const step = async (name) => {
    if (!(await runStep(name))) failed.push(name);
  };
  await some(
    chosen.filter((name) => BESIDE.includes(name)),
    step,
  );
  for (const name of chosen) if (!BESIDE.includes(name)) await step(name);

  const verdict = failed.length === 0 ? 'all ok' : `failed: ${failed.join(', ')}`;
  console.log(`\n${chosen.length} steps in ${secondsSince(startedAt)}, ${verdict}`);
  if (failed.length > 0) process.exitCode = 1;
  else if (chosen.includes('tests')) console.log(`${passedTests} passed, 0 failed`);
}

function chooseSteps() {
  const { values } = parseArgs({ options: { only: { type: 'string' }, skip: { type: 'string' } } });
  const all = Object.keys(steps);
  const only = values.only?.split(',') ?? all;
  const skip = values.skip?.split(',') ?? [];
  const unknown = [...only, ...skip].filter((name) => !all.includes(name));
  if (unknown.length > 0) {
    console.error(`No step ${unknown.join(', ')}. The steps are ${all.join(', ')}.`);
    process.exit(2);
  }
  return all.filter((name) => only.includes(name) && !skip.includes(name));
}

/** @param {string} name */
async function runStep(name) {
  const startedAt = performance.now();
  const step = /** @type {() => Promise<Result>} */ (steps[name]);
  const { ok, output, note } = await step();
  if (!ok) console.log(output.trimEnd());
  const time = secondsSince(startedAt).padStart(8);
  console.log(`${name.padEnd(10)} ${ok ? 'ok    ' : 'failed'} ${time}${note ? `  ${note}` : ''}`);
  return ok;
}

/** Shows its output as it runs, because it takes longest. The counts come from a separate JSON report. */
async function runTests() {
  const folder = mkdtempSync(join(tmpdir(), 'tidemill-check-'));
  const file = join(folder, 'tests.json');
  try {
    const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${file}`];
    const result = await npmRun('test:unit', ['--allowOnly=false', ...reporters], 'inherit');
    if (!existsSync(file)) return { ...result, ok: false, note: 'no test report was written' };
    const report = /** @type {Report} */ (JSON.parse(readFileSync(file, 'utf8')));
    passedTests = report.numPassedTests;
    const skipped = report.numPendingTests + report.numTodoTests;
    return { ...result, note: `${passedTests} passed, ${report.numFailedTests} failed, ${skipped} skipped` };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Runs each example that carries the mark; starts no more once one has failed. */
async function runExamples() {
  const files = readdirSync('examples', { withFileTypes: true })
    .map((entry) => join('examples', entry.name, entry.isDirectory() ? 'main.ts' : ''))
    .filter((path) => path.endsWith('.ts') && existsSync(path))
    .filter((path) => EXAMPLE_MARK.test(readFileSync(path, 'utf8')));
  /** @type {Result | undefined} */
  let failed;
  await some(files, async (file) => {
    if (failed !== undefined) return;
    const result = await run(process.execPath, ['--import', 'tsx', file], { limitMs: EXAMPLE_LIMIT_MS });
    if (!result.ok) failed = { ...result, note: file };
  });
  return failed ?? { ok: true, output: '', note: `${files.length} run` };
}

/**
 * Calls `work` for each item, a few at a time, in order.
 * @template T
 * @param {T[]} items
 * @param {(item: T) => Promise<void>} work
 */
async function some(items, work) {
  const left = [...items];
  const hand = async () => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, hand));
}

/**
 * @param {string} script
 * @param {string[]} args
 * @param {'inherit' | 'pipe'} stdio
 */
function npmRun(script, args = [], stdio = 'pipe') {
  return run('npm', ['run', '--silent', script, '--', ...args], { stdio });
}

/**
 * @param {string} command
 * @param {string[]} args
 * @param {{ stdio?: 'inherit' | 'pipe', limitMs?: number }} options
 * @returns {Promise<Result>}
 */
function run(command, args, { stdio = 'pipe', limitMs }) {
  return new Promise((resolve, reject) => {
    // A limited command leads its own process group, so that the servers it started end with it.
    const detached = limitMs !== undefined;
    const child = spawn(command, args, { stdio: ['ignore', stdio, stdio], detached });
    // All other steps run at a lower priority than the tests, the one step that inherits stdio.
    if (stdio === 'pipe' && child.pid !== undefined)
      setPriority(child.pid, constants.priority.PRIORITY_BELOW_NORMAL);
    let output = '';
    child.stdout?.on('data', (/** @type {Buffer} */ data) => (output += data.toString()));
    child.stderr?.on('data', (/** @type {Buffer} */ data) => (output += data.toString()));
    const limit =
      detached &&
      setTimeout(() => {
        output += `\nstill running after ${limitMs} ms`;
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      }, limitMs);
    child.on('error', reject);
    child.on('close', (code) => {
      if (limit) clearTimeout(limit);
      resolve({ ok: code === 0, output });
    });
  });
}

/** @param {number} startedAt */
function secondsSince(startedAt) {
  return `${((performance.now() - startedAt) / 1000).toFixed(1)} s`;
}
