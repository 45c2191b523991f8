import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import * as library from '../../../src/compat/mongodash/index.js';

it('every right-hand side of the page is compiled', async () => {
  const page = await readFile(new URL('../../../docs/from-mongodash.md', import.meta.url), 'utf8');
  const compiled = await readFile(new URL('page.ts', import.meta.url), 'utf8');
  const [, table = ''] = page.split('| you wrote | you write |');
  const rows = table.split('\n\n')[0]?.split('\n').slice(2) ?? [];
  const lines = rows.flatMap((row) =>
    [...(row.split(' | ')[1] ?? '').matchAll(/`([^`]+)`/gu)].map(([, code]) => code),
  );
  expect(lines.length).toBeGreaterThan(rows.length);
  for (const line of lines) expect(compiled).toContain(`  ${String(line)}\n`);
});

it('the page says of each code that is never reported that it is not', async () => {
  const page = await readFile(new URL('../../../docs/from-mongodash.md', import.meta.url), 'utf8');
  const named = [...page.matchAll(/CODE_\w+/gu)].map(([name]) => name);
  for (const name of named) expect(Object.keys(library)).toContain(name);
});
