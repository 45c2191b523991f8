/**
 * Writes docs/reference from the doc comments in src/: `npm run reference`.
 * test/tooling/reference.test.ts compares the pages with them.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gapsOf, pagesOf } from './pages.js';
import { root, Source } from './source.js';

const source = new Source();
const folder = join(root, 'docs/reference');
mkdirSync(folder, { recursive: true });
for (const [name, text] of pagesOf(source)) writeFileSync(join(folder, name), text);
for (const gap of gapsOf(source)) console.warn(gap);
