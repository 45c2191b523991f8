import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';

const root = resolve(import.meta.dirname, '../..');
const config = join(root, '.dependency-cruiser.cjs');
const { forbidden } = createRequire(import.meta.url)(config) as { forbidden: { name: string }[] };

/** Each file breaks exactly the rule it is listed under. */
const offences: [rule: string, file: string, statement: string][] = [
  ['core-imports', 'src/core/bad.ts', `import '../time/target.js';`],
  ['time-imports', 'src/time/bad.ts', `import '../store/target.js';`],
  ['store-imports', 'src/store/bad.ts', `import '../engine/target.js';`],
  ['engine-imports', 'src/engine/bad.ts', `import '../jobs/target.js';`],
  ['locks-imports', 'src/locks/bad.ts', `import '../engine/target.js';`],
  ['maintenance-imports', 'src/maintenance/bad.ts', `import '../memory/target.js';`],
  ['jobs-imports', 'src/jobs/bad.ts', `import '../index.js';`],
  ['documents-imports', 'src/documents/bad.ts', `import '../jobs/target.js';`],
  ['reactive-imports', 'src/reactive/bad.ts', `import '../documents/target.js';`],
  ['memory-imports', 'src/memory/bad.ts', `import '../engine/target.js';`],
  ['mongodb-imports', 'src/mongodb/bad.ts', `import '../memory/target.js';`],
  ['sql-imports', 'src/sql/bad.ts', `import '../postgres/target.js';`],
  ['postgres-imports', 'src/postgres/bad.ts', `import type {} from '../jobs/target.js';`],
  ['embedded-imports', 'src/embedded/bad.ts', `import '../postgres/target.js';`],
  ['metrics-imports', 'src/metrics/bad.ts', `import '../engine/target.js';`],
  ['tracing-imports', 'src/tracing/bad.ts', `import '../store/target.js';`],
  ['dashboard-imports', 'src/dashboard/bad.ts', `import '../store/target.js';`],
  ['testing-imports', 'src/testing/bad.ts', `import '../mongodb/target.js';`],
  ['cli-imports', 'src/cli/bad.ts', `import '../core/target.js';`],
  ['compat-imports', 'src/compat/bad.ts', `import '../jobs/target.js';`],
  ['compat-imports', 'src/compat/one/bad-depth.ts', `import '../../mill/target.js';`],
  ['compat-imports', 'src/compat/one/bad-store.ts', `import '../../mongodb/target.js';`],
  ['compat-entries-stand-alone', 'src/compat/one/bad-other.ts', `import '../other/target.js';`],
  ['compat-imports-types-of-drivers', 'src/compat/one/bad-driver.ts', `import 'mongodb';`],
  ['front-door-imports-no-client', 'src/bad-client.ts', `import './testing/target.js';`],
  ['front-door-imports-no-client', 'src/mill/bad-client.ts', `import '../cli/target.js';`],
  ['front-door-loads-stores-lazily', 'src/mill/bad-store.ts', `import '../sql/target.js';`],
  ['front-door-loads-stores-lazily', 'src/bad-store.ts', `import './memory/target.js';`],
  ['front-door-loads-stores-lazily', 'src/bad-type.ts', `import type {} from './mongodb/target.js';`],
  ['mongodb-driver-in-one-place', 'src/engine/bad-driver.ts', `import type {} from 'mongodb';`],
  ['pg-driver-in-one-place', 'src/sql/bad-driver.ts', `import type {} from 'pg';`],
  [
    '@electric-sql/pglite-driver-in-one-place',
    'src/postgres/bad-driver.ts',
    `import '@electric-sql/pglite';`,
  ],
  ['prom-client-driver-in-one-place', 'src/engine/bad-metrics.ts', `import 'prom-client';`],
  ['@opentelemetry/api-driver-in-one-place', 'src/jobs/bad-spans.ts', `import '@opentelemetry/api';`],
  ['one-async-storage', 'src/core/bad-storage.ts', `import 'node:async_hooks';`],
  ['known-folders', 'src/elsewhere/bad.ts', `import '../core/target.js';`],
  ['shipped-code-stays-in-src', 'src/core/bad-reach.ts', `import '../../test/target.js';`],
  ['no-import-by-own-name', 'src/core/bad-name.ts', `import type {} from 'tidemill';`],
  ['no-import-by-own-name', 'src/jobs/bad-path.ts', `import 'tidemill/memory';`],
  ['conformance-suite-stands-alone', 'src/testing/bad-suite.ts', `import './conformance/good.js';`],
  ['no-cycles', 'src/core/cycle-a.ts', `import type {} from './cycle-b.js';`],
];

/** None of these is reported; a cycle is reported once, at its first file. */
const allowed: [file: string, statement: string][] = [
  ['src/index.ts', `import './jobs/target.js'; export const open = () => import('./mongodb/target.js');`],
  ['src/mongodb/good.ts', `import 'mongodb'; import '../store/target.js'; import '../time/target.js';`],
  ['src/postgres/good.ts', `import 'pg'; import '../sql/target.js'; import '../store/target.js';`],
  ['src/embedded/good.ts', `import '@electric-sql/pglite'; import '../sql/target.js';`],
  [
    'src/mill/good.ts',
    `import '../locks/target.js'; export const open = () => import('../memory/target.js');`,
  ],
  ['src/testing/good.ts', `import '../index.js'; import '../mill/good.js'; import '../memory/target.js';`],
  ['src/testing/conformance/good.ts', `import '../../index.js'; import '../../store/target.js';`],
  ['src/compat/one/object-id.ts', `import 'mongodb';`],
  ['src/compat/other/target.ts', `export {};`],
  ['src/compat/mongodash/good.ts', `import 'mongodb'; import '../../dashboard/index.js';`],
  ['src/dashboard/index.ts', `export {};`],
  ['src/cli/good-import.ts', `import '../compat/other/target.js';`],
  ['src/time/cron.ts', `import '../core/target.js';`],
  [
    'src/compat/one/good.ts',
    `import '../../index.js'; import '../../documents/index.js'; import '../../time/cron.js';`,
  ],
  ['src/documents/index.ts', `import '../engine/target.js';`],
  ['src/jobs/good.ts', `import '../engine/target.js'; import '../maintenance/target.js';`],
  ['src/core/cycle-b.ts', `import type {} from './cycle-a.js';`],
  ['src/core/good.ts', `import 'fastest-levenshtein'; import 'node:crypto';`],
];

const folders: string[] = [];
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true });
});

function writeTree(files: readonly (readonly [file: string, text: string])[]): string {
  const folder = mkdtempSync(join(tmpdir(), 'tidemill-boundaries-'));
  folders.push(folder);
  for (const [file, text] of files) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), text);
  }
  return folder;
}

function cruise(folder: string): { status: number | null; report: string } {
  const { status, stdout } = spawnSync(
    join(root, 'node_modules/.bin/depcruise'),
    ['src', '--config', config, '--output-type', 'err'],
    { cwd: folder, encoding: 'utf8', env: { ...process.env, FORCE_COLOR: '0' } },
  );
  return { status, report: stdout };
}

// `npm run boundaries` holds the source tree to them.
describe('import boundaries', () => {
  it('the import rules report every import that points the wrong way, and no other', () => {
    const targets = offences.map(([, file]) => [join(dirname(file), 'target.ts'), 'export {};'] as const);
    const bad = offences.map(([, file, statement]) => [file, statement] as const);
    const folder = writeTree([...targets, ['test/target.ts', 'export {};'], ...allowed, ...bad]);

    const { status, report } = cruise(folder);

    expect(status).not.toBe(0);
    const reported = [...report.matchAll(/^ *error (\S+: \S+)/gm)].map(([, violation]) => violation);
    expect(reported.sort()).toEqual(offences.map(([rule, file]) => `${rule}: ${file}`).sort());
  });

  it('every import rule is tripped by the test above', () => {
    const tripped = new Set(offences.map(([rule]) => rule));
    expect(forbidden.map(({ name }) => name).filter((name) => !tripped.has(name))).toEqual([]);
  });
});
