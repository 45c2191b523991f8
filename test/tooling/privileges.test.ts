import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, it } from 'vitest';

const read = (path: string): string => readFileSync(resolve(import.meta.dirname, '../..', path), 'utf8');

it.each(['privileges/postgres.sql', 'privileges/mongodb.js'])(
  'docs/security.md shows %s as it is shipped',
  (path) => {
    expect(read('docs/security.md')).toContain(read(path).trimEnd());
    expect((JSON.parse(read('package.json')) as { files: string[] }).files).toContain('privileges');
  },
);
