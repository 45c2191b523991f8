import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';

const root = resolve(import.meta.dirname, '../..');
const docs = join(root, 'docs/frameworks');
const pages = readdirSync(docs).filter((name) => name !== 'index.md');

interface Block {
  /** The example that the last link before the block leads to. */
  readonly file: string | undefined;
  readonly code: string;
}

const LINK = /\]\((?<path>[^)\s]*examples\/[^)\s]*)\)/gu;

/** The blocks of code on a page; commands for a shell are left out. */
function blocksOf(text: string): Block[] {
  const parts = text.split(/^```/mu);
  return parts.flatMap((part, index) => {
    const [language, ...lines] = part.split('\n');
    if (index % 2 === 0 || language === 'sh') return [];
    const before = parts.filter((_part, at) => at < index && at % 2 === 0).join('');
    const link = [...before.matchAll(LINK)].at(-1)?.groups?.['path'];
    return [{ file: link && resolve(docs, link), code: lines.join('\n') }];
  });
}

/** Lines without the indentation that all of them have. */
function dedent(lines: readonly string[]): string {
  const filled = lines.filter((line) => line !== '');
  const depth = Math.min(...filled.map((line) => line.length - line.trimStart().length));
  return lines.map((line) => line.slice(depth)).join('\n');
}

/** Whether the code is a run of whole lines of the text, at any depth of indentation. */
function isPartOf(code: string, text: string): boolean {
  const lines = text.split('\n');
  const wanted = code.trimEnd().split('\n');
  return lines.some(
    (_line, start) => dedent(lines.slice(start, start + wanted.length)) === wanted.join('\n'),
  );
}

const files = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)));

describe.each(pages)('docs/frameworks/%s', (page) => {
  const text = readFileSync(join(docs, page), 'utf8');
  const example = join(root, 'examples/frameworks', page.replace('.md', ''));
  const blocks = blocksOf(text);

  it(`each block of code in docs/frameworks/${page} is code of the example that is linked before it`, () => {
    expect(blocks.length).toBeGreaterThan(5);
    for (const { file, code } of blocks) {
      expect(file, code).toBeDefined();
      expect(file?.startsWith(`${example}/`), `${String(file)} belongs to another example`).toBe(true);
      expect(isPartOf(code, readFileSync(file ?? '', 'utf8')), `not in ${String(file)}:\n${code}`).toBe(true);
    }
  });

  it(`docs/frameworks/${page} shows something of each file of its example`, () => {
    const shown = new Set(blocks.map(({ file }) => relative(example, file ?? '')));
    expect(files(example).filter((file) => !shown.has(file))).toEqual([]);
  });

  it(`docs/frameworks/index.md links to docs/frameworks/${page}`, () => {
    expect(readFileSync(join(docs, 'index.md'), 'utf8')).toContain(`](${page})`);
  });
});

it('each framework example has a page', () => {
  const examples = readdirSync(join(root, 'examples/frameworks'));
  expect(examples.map((name) => `${name}.md`).toSorted()).toEqual(pages.toSorted());
});

it('code that is not in the example, or only in part of a line, is found', () => {
  const example = 'a();\nif (b) {\n  c();\n  d();\n}\n';
  expect(isPartOf('c();\nd();\n', example)).toBe(true);
  expect(isPartOf('a();\nc();\n', example)).toBe(false);
  expect(isPartOf('if (b)\n', example)).toBe(false);
  expect(dirname(blocksOf('[x](../../examples/y/z.ts)\n```ts\na();\n```\n')[0]?.file ?? '')).toBe(
    join(root, 'examples/y'),
  );
});
