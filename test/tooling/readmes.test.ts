/** READMEs of the folders of sources, compared with the files beside them. */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';

const root = resolve(import.meta.dirname, '../..');
const README = 'README.md';
/** A folder of this many files explains itself. */
const MOST_WITHOUT = 5;
/** The name of a file between backticks, alone or with a path. */
const FILE = /`((?:[\w-][\w.-]*\/|\.\.\/)*[\w-][\w.-]*\.(?:tsx?|css|svg))`/gu;

/** A folder of sources, and all folders in it. */
function foldersIn(base: string): readonly string[] {
  const entries = readdirSync(base, { recursive: true, withFileTypes: true });
  const inside = entries.filter((entry) => entry.isDirectory());
  return [base, ...inside.map(({ name, parentPath }) => join(parentPath, name))];
}

const filesIn = (folder: string): readonly string[] =>
  readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name !== README)
    .map(({ name }) => name);

/** Says what is wrong with the README of a folder; `top` is where paths such as `src/store/limits/scope.ts` begin. */
function faultsOf(folder: string, top: string): readonly string[] {
  const files = filesIn(folder);
  const path = join(folder, README);
  if (!existsSync(path))
    return files.length > MOST_WITHOUT ? [`has ${String(files.length)} files and no README`] : [];
  const named = [...readFileSync(path, 'utf8').matchAll(FILE)].map(([, name = '']) => name);
  return [
    ...files.filter((name) => !named.includes(name)).map((name) => `does not name ${name}`),
    ...named
      .filter((name) => !isFound(name, folder, top))
      .map((name) => `names ${name}, which does not exist`),
  ];
}

/** A name alone is a file of the folder, or of one below it. A path may also begin at `src`, or at the top. */
function isFound(name: string, folder: string, top: string): boolean {
  if (name.includes('/')) return [folder, join(top, 'src'), top].some((from) => existsSync(join(from, name)));
  return foldersIn(folder).some((inner) => existsSync(join(inner, name)));
}

const faultsBelow = (base: string, top: string): readonly string[] =>
  foldersIn(base).flatMap((folder) =>
    faultsOf(folder, top).map((fault) => `${relative(top, folder)} ${fault}`),
  );

describe('READMEs of folders', () => {
  it.each(['src', 'dashboard/src'])(
    'each file of a folder in %s is named in its README, and exists',
    (base) => {
      expect(foldersIn(join(root, base)).length).toBeGreaterThan(5);
      expect(faultsBelow(join(root, base), root)).toEqual([]);
    },
  );

  describe('the check finds', () => {
    const top = mkdtempSync(join(tmpdir(), 'tidemill-readmes-'));
    afterAll(() => rmSync(top, { recursive: true }));

    /** Makes a tree of files, and returns its faults. */
    function faultsIn(name: string, files: Readonly<Record<string, string>>): readonly string[] {
      const base = join(top, name);
      for (const [path, text] of Object.entries(files)) {
        mkdirSync(dirname(join(base, path)), { recursive: true });
        writeFileSync(join(base, path), text);
      }
      return faultsBelow(join(base, 'src'), base);
    }

    const six = Object.fromEntries(['a', 'b', 'c', 'd', 'e', 'f'].map((name) => [`src/jobs/${name}.ts`, '']));

    it('nothing in a folder whose README names each of its files', () => {
      const text = [
        '- `claim.ts`: claims',
        '- `run/batch.ts`, `batch.ts`: batches',
        '- `../store/port.ts`, `src/store/port.ts`, `store/port.ts`: the port',
      ].join('\n');
      const files = { 'src/jobs/claim.ts': '', 'src/jobs/run/batch.ts': '', 'src/store/port.ts': '' };
      expect(faultsIn('right', { ...files, 'src/jobs/README.md': text })).toEqual([]);
    });

    it('a file that the README does not name, although it has the word', () => {
      const text = 'May import `core`. What a `claim` takes; `settle.ts`.';
      const files = { 'src/jobs/claim.ts': '', 'src/jobs/settle.ts': '', 'src/jobs/README.md': text };
      expect(faultsIn('unnamed', files)).toEqual(['src/jobs does not name claim.ts']);
    });

    it('a named file that does not exist', () => {
      const text = '`claim.ts`, `keys.ts`, `../store/gone.ts`, and `data.json`, which is no source';
      const files = { 'src/jobs/claim.ts': '', 'src/store/keys.ts': '', 'src/jobs/README.md': text };
      expect(faultsIn('gone', files)).toEqual([
        'src/jobs names keys.ts, which does not exist',
        'src/jobs names ../store/gone.ts, which does not exist',
      ]);
    });

    it('a folder with more than five files and no README', () => {
      const { 'src/jobs/f.ts': last, ...five } = six;
      expect(last).toBe('');
      expect(faultsIn('five', five)).toEqual([]);
      expect(faultsIn('six', six)).toEqual(['src/jobs has 6 files and no README']);
    });
  });
});
