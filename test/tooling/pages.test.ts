/** Pages that are written by hand, compared with the code that they are about. */
import { readFileSync, readdirSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';
import { commandsOf } from '../../scripts/reference/commands.js';
import { walk } from '../../scripts/reference/source.js';
import * as front from '../../src/index.js';

const root = resolve(import.meta.dirname, '../..');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');

/** The sources of the package, parsed one by one: nothing here needs to know types. */
const files = readdirSync(join(root, 'src'), { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
  .map((entry) => join(entry.parentPath, entry.name))
  .map((path) => ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest, true));

function collect<T>(pick: (node: ts.Node) => T | undefined): readonly T[] {
  const found: T[] = [];
  for (const file of files)
    walk(file, (node) => {
      const one = pick(node);
      if (one !== undefined) found.push(one);
    });
  return found;
}

describe('docs/errors.md', () => {
  /** Every error that the code makes, as `CODE Class`. Classes that are not exported are what users see of them. */
  const thrown = collect((node) => {
    const made = madeError(node);
    if (made === undefined) return undefined;
    const code =
      made.code !== undefined && ts.isStringLiteral(made.code)
        ? made.code.text
        : (made.code?.getText() ?? '');
    return `${code} ${made.type in front ? made.type : 'TidemillError'}`;
  });

  it('docs/errors.md lists exactly the codes of errors, each with its class', () => {
    const rows = [...read('docs/errors.md').matchAll(/^\| `([A-Z_]+)` \| `(\w+)` \|/gmu)];
    const said = rows.map(([, code = '', type = '']) => `${code} ${type}`);
    expect(said.toSorted()).toEqual([...new Set(thrown)].toSorted());
  });
});

/** The code of `new TidemillError(code, …)`, of a subclass that passes its own on, or of one that replaces its parent's. */
function madeError(
  node: ts.Node,
): { readonly code: ts.Expression | undefined; readonly type: string } | undefined {
  if (ts.isNewExpression(node) && node.expression.getText() === 'TidemillError')
    return { code: node.arguments?.[0], type: 'TidemillError' };
  if (ts.isPropertyDeclaration(node) && node.getText().startsWith('override readonly code'))
    return { code: node.initializer, type: (node.parent as ts.ClassDeclaration).name?.text ?? '' };
  const isSuper = ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.SuperKeyword;
  const owner = isSuper ? ts.findAncestor(node, ts.isClassDeclaration) : undefined;
  if (owner === undefined || !isSuper) return undefined;
  const parent = owner.heritageClauses?.flatMap(({ types }) =>
    types.map(({ expression }) => expression.getText()),
  );
  if (parent?.includes('TidemillError') !== true) return undefined;
  return { code: node.arguments[0], type: owner.name?.text ?? '' };
}

describe('docs/cli.md', () => {
  const guide = read('docs/cli.md');
  const commands = commandsOf();

  it('docs/cli.md has a section for each command, and none for another', () => {
    const general = ['which store', 'for people and for programs'];
    const headings = [...guide.matchAll(/^## (.*)$/gmu)].map(([, heading = '']) => heading.toLowerCase());
    const told = headings
      .filter((heading) => !general.includes(heading))
      .flatMap((heading) => heading.split(' and '));
    expect(told.toSorted()).toEqual(commands.map((command) => command.name()).toSorted());
  });

  it('docs/cli.md names no option that does not exist', () => {
    const known = new Set([
      '--help',
      ...commands.flatMap(({ options }) => options.map(({ long }) => long ?? '')),
    ]);
    const named = [...guide.matchAll(/(?<![\w-])--[a-z][a-z-]*/gu)].map(([flag]) => flag);
    expect([...new Set(named)].filter((flag) => !known.has(flag))).toEqual([]);
  });
});

describe('docs/adr', () => {
  it('a decision that names a file which is gone says in its first lines that it was overtaken', () => {
    const stale = readdirSync(join(root, 'docs/adr')).filter((name) => {
      const text = read(`docs/adr/${name}`);
      const paths = [...text.matchAll(/\b((?:src|test)\/[\w/-]+\.ts)\b/gu)].map(([, path = '']) => path);
      const [, note = ''] = text.split('\n\n');
      return paths.some((path) => !exists(path)) && !note.startsWith('**Overtaken');
    });
    expect(stale).toEqual([]);
  });
});

describe('maps of the source tree', () => {
  const folders = readdirSync(join(root, 'src'), { withFileTypes: true });
  const names = folders.filter((entry) => entry.isDirectory()).map(({ name }) => name);

  it('CONTRIBUTING.md lists every folder of src, and no other', () => {
    const listed = [...read('CONTRIBUTING.md').matchAll(/\bsrc\/([a-z]+)\/(?=[\s;])/gu)].map(
      ([, name = '']) => name,
    );
    expect([...new Set(listed)].toSorted()).toEqual(names.toSorted());
  });

  it('CONTRIBUTING.md lists every folder of the repository that is not hidden or built, and no other', () => {
    const layout =
      /^## Layout\n\n(?<lines>(?: {4}.*\n)+)/mu.exec(read('CONTRIBUTING.md'))?.groups?.['lines'] ?? '';
    const listed = layout.split('\n').flatMap((line) => {
      const isList = /^ {4}(?:[a-z]+\/ ?)+$/u.test(line);
      return [...line.matchAll(isList ? /([a-z]+)\//gu : /^ {4}([a-z]+)\/ /gu)].map(([, name = '']) => name);
    });
    const built = ['node_modules', 'dist', 'coverage', 'src'];
    const actual = readdirSync(root, { withFileTypes: true })
      .filter(({ name }) => !name.startsWith('.') && !built.includes(name))
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);
    expect([...new Set(listed)].toSorted()).toEqual(actual.toSorted());
  });

  it('the paths in the tables of CONTRIBUTING.md exist', () => {
    const paths = [...read('CONTRIBUTING.md').matchAll(/`((?:src|dashboard|test|scripts)\/[\w/.-]+)`/gu)];
    expect(paths.length).toBeGreaterThan(15);
    expect(paths.map(([, path = '']) => path).filter((path) => !exists(path))).toEqual([]);
  });

  it('the map of docs/architecture.md has every folder and file of src that it shows, and every folder of src', () => {
    const shown = mapOf(read('docs/architecture.md'));
    expect(shown.filter((path) => !exists(path))).toEqual([]);
    expect(names.filter((name) => !shown.includes(`src/${name}`))).toEqual([]);
  });

  it('the map of docs/architecture.md shows a folder with all of its folders or none', () => {
    const shown = mapOf(read('docs/architecture.md'));
    const parents = new Set(shown.map((path) => path.split('/').slice(0, -1).join('/')));
    const inside = [...parents].filter((path) => path.startsWith('src/'));
    const missing = inside.flatMap((parent) =>
      readdirSync(join(root, parent), { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map(({ name }) => `${parent}/${name}`)
        .filter((path) => !shown.includes(path)),
    );
    expect(missing).toEqual([]);
  });

  it('the table of layers in docs/architecture.md has every folder of src', () => {
    const table = /^\| folder \| what it is \| may import \|\n(?<rows>(?:\|.*\n)+)/mu.exec(
      read('docs/architecture.md'),
    );
    const rows = (table?.groups?.['rows'] ?? '').split('\n').map((row) => row.split('|')[1] ?? '');
    const listed = rows.flatMap((cell) => [...cell.matchAll(/`([\w.]+)`/gu)].map(([, name = '']) => name));
    expect(listed.toSorted()).toEqual([...names, 'index.ts', 'tidemill.ts'].toSorted());
  });
});

function exists(path: string): boolean {
  try {
    return readdirSync(join(root, path, '..')).includes(
      path
        .split('/')
        .filter((part) => part !== '')
        .at(-1) ?? '',
    );
  } catch {
    return false;
  }
}

/** The paths that the drawn tree of src shows: by indentation, and folders that a line names after its colon. */
function mapOf(page: string): readonly string[] {
  const tree = /^ {4}src\/\n(?<lines>(?: {6}.*\n)+)/mu.exec(page)?.groups?.['lines'] ?? '';
  const parents: string[] = ['src'];
  return tree
    .trimEnd()
    .split('\n')
    .flatMap((line) => {
      const depth = (line.search(/\S/u) - 4) / 2;
      const [name = '', about = ''] = line.trim().split(/\s{2,}/u);
      const path = `${parents.slice(0, depth).join('/')}/${name.replace(/\/$/u, '')}`;
      parents.splice(depth, parents.length, name.replace(/\/$/u, ''));
      const within = about.includes(':') ? foldersIn(about.slice(about.indexOf(':') + 1), path) : [];
      return [path, ...within];
    });
}

/** `jobs/, reactive/ (feed/, plan/)` below a path. */
function foldersIn(text: string, path: string): readonly string[] {
  const outer = text.replaceAll(/(?<parent>[a-z]+)\/ \((?<inner>[^)]*)\)/gu, '$<parent>/');
  const nested = [...text.matchAll(/([a-z]+)\/ \(([^)]*)\)/gu)].flatMap(([, parent = '', inner = '']) =>
    foldersIn(inner, `${path}/${parent}`),
  );
  return [
    ...[...outer.matchAll(/\b([a-z]+)\/(?=[,\s]|$)/gu)].map(([, name = '']) => `${path}/${name}`),
    ...nested,
  ];
}

/** Words that every engineer of this field knows, in the singular. Our own words belong in the glossary. */
const COMMON: ReadonlySet<string> = new Set(
  `admission all argument asset backoff board body builder cache cancel cancelled call change channel cli client clock
  collection command condition connection context cron demo election embedded emitter engine enqueuer error fatal fetcher folder
  fragment gate grace histogram hold hook insert insertion interval listen listener listening login loop majority memory metric
  model mongo mongodb monitor mutex notifier option ordered otel outage output page parameter peer pool position postgres
  prepared private processe prometheus reader recorder refusal response result rollback run runner runtime scan scanner
  screen secret server shop silent size sql stopping stream table taken test text tidemill timeout tracer tracing
  thread transaction url value virtual walk watch zoned`.split(/\s+/u),
);

const wordsOf = (name: string): readonly string[] =>
  [...name.matchAll(/[A-Z][a-z]*/gu)].map(([word]) => word.toLowerCase());

const singular = (word: string): string => word.replace(/s$/u, '');

/** A term of the glossary also covers what does it and what it was done to: claim, claimer, claimed. */
const covers = (term: string, word: string): boolean => {
  const stem = term.replace(/e?s?$/u, '');
  return (
    term === word ||
    (stem.length > 2 &&
      word.startsWith(stem) &&
      /^(?:e|s|es|r|er|or|ed|d|t|ing)?$/u.test(word.slice(stem.length)))
  );
};

describe('docs/glossary.md', () => {
  const [glossary = ''] = read('docs/glossary.md').split(/^## /mu);
  const terms = [...glossary.matchAll(/^\| \*\*(.+?)\*\* \|/gmu)].map(([, term = '']) => term);
  const classes = collect((node) =>
    ts.isClassDeclaration(node) && node.name !== undefined
      ? { name: node.name.text, path: relative(root, node.getSourceFile().fileName) }
      : undefined,
  );

  it('class names of our own are in the glossary or made of common words of the field', () => {
    const words = terms.flatMap((term) => term.toLowerCase().split(/[\s-]+/u));
    const isKnown = (word: string): boolean =>
      COMMON.has(word) || COMMON.has(singular(word)) || words.some((term) => covers(term, word));
    expect(classes.length).toBeGreaterThan(150);
    const own = classes.filter(({ path }) => !path.startsWith('src/compat/'));
    const riddles = own.filter(({ name }) => !terms.includes(name) && !wordsOf(name).every(isKnown));
    expect(riddles.map(({ name, path }) => `${name} (${path})`)).toEqual([]);
  });

  it('class names are unique, so that a name in a stack trace says which class it is', () => {
    const first = new Map(classes.toReversed().map(({ name, path }) => [name, path]));
    const twice = classes.filter(({ name, path }) => first.get(name) !== path);
    expect(twice.map(({ name, path }) => `${name}: ${first.get(name) ?? ''}, ${path}`)).toEqual([]);
  });

  it('the list of common words has no word that no class name uses', () => {
    const used = new Set(
      classes.flatMap(({ name }) => wordsOf(name)).flatMap((word) => [word, singular(word)]),
    );
    expect([...COMMON].filter((word) => !used.has(word))).toEqual([]);
  });

  it('the glossary has each term once, in alphabetical order', () => {
    const plain = terms.map((term) => term.toLowerCase().replaceAll('-', ' '));
    expect(terms.length).toBeGreaterThan(100);
    expect(plain).toEqual([...new Set(plain)].toSorted());
  });
});
