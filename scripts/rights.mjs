/**
 * Runs the tests that every store must pass with exactly the rights of privileges/, on PostgreSQL and on a MongoDB
 * with authorization.
 *
 *   npm run test:rights               all of them
 *   npm run test:rights -- --some     a selection that uses every kind of statement; part of the gate
 */
import { spawn } from 'node:child_process';
import { parseArgs } from 'node:util';

const ALL = ['test/conformance', 'test/reactive/shared', 'test/documents/shared'];
const SOME = [
  'test/conformance/run.test.ts',
  'test/conformance/insight.test.ts',
  'test/reactive/shared/flow.test.ts',
  'test/documents/shared/kinds.test.ts',
];

const { values, positionals } = parseArgs({ options: { some: { type: 'boolean' } }, allowPositionals: true });
const files = positionals.length > 0 ? positionals : values.some ? SOME : ALL;
const child = spawn('npx', ['vitest', 'run', ...files, '-t', String.raw`\((mongodb|postgres)\)`], {
  stdio: 'inherit',
  env: { ...process.env, LEAST_RIGHTS: '1' },
});
child.on('exit', (code) => {
  process.exitCode = code ?? 1;
});
