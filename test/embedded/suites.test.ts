import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, it } from 'vitest';
import { EMBEDDED_SUITES } from '../support/embedded-suites.js';

const SUITE = /^each(?:Store|Database|DocumentStore)\('([^']+)'/gmu;

it('every suite that is listed for the embedded store exists', () => {
  const root = resolve(import.meta.dirname, '..');
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter(
    (file) => file.endsWith('.test.ts') && !file.includes('node_modules'),
  );
  const suites = files.flatMap((file) =>
    [...readFileSync(join(root, file), 'utf8').matchAll(SUITE)].map(([, suite]) => suite),
  );
  expect(EMBEDDED_SUITES.filter((suite) => !suites.includes(suite))).toEqual([]);
});
