/**
 * Gathers what the site is made of in `pages/`: its home page, the pages of docs/, every example as a page, the README's of other folders, and
 * the API reference from the types. Links that lead out of docs/ are turned to those pages, so that VitePress finds every dead one.
 */
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, posix, relative, resolve } from 'node:path';
import { Application } from 'typedoc';
import { forSite, pinned } from './markdown.mjs';
import { pagesIn } from './navigation.mjs';

const root = resolve(import.meta.dirname, '..');
const pages = join(import.meta.dirname, 'pages');

/** Where files of the repository are on the site. */
const PLACES = new Map([
  ['README.md', 'readme'],
  ['CHANGELOG.md', 'changelog'],
  ['CONTRIBUTING.md', 'contributing'],
  ['LICENSE', 'license'],
  ['SECURITY.md', 'security-policy'],
  ['bench/README.md', 'benchmark'],
  ['servers/README.md', 'servers'],
  ['docs/README.md', 'contents'],
  ['docs/adr', 'adr/index'],
  ['docs/reference', 'reference/index'],
  ['docs/frameworks', 'frameworks/index'],
  ['examples', 'examples/index'],
]);
const ENTRIES = [
  'index',
  'documents',
  'embedded',
  'memory',
  'mongodb',
  'postgres',
  'store',
  'testing',
  'testing/conformance',
  'dashboard',
];

rmSync(pages, { recursive: true, force: true });
cpSync(join(root, 'docs'), pages, { recursive: true });
rmSync(join(pages, 'README.md'));
cpSync(join(import.meta.dirname, 'home.md'), join(pages, 'index.md'));
cpSync(join(root, 'dashboard/src/icon.svg'), join(pages, 'public/icon.svg'));
drawings();
const examples = readdirSync(join(root, 'examples')).filter((name) => name.endsWith('.ts'));
for (const name of examples) PLACES.set(`examples/${name}`, `examples/${name.replace('.ts', '')}`);

for (const file of markdownIn(pages)) {
  const source = posix.join('docs', relative(pages, file));
  writeFileSync(file, linked(forSite(readFileSync(file, 'utf8')), source));
}
for (const [source, place] of PLACES) if (isFile(source)) write(place, pageOf(source));
write(
  'examples/index',
  list('Examples', 'Each runs by itself: `npx tsx examples/retries.ts`.', examples.map(exampleLine)),
);
const decisions = readdirSync(join(root, 'docs/adr'));
write('adr/index', list('Decisions', 'Why it is as it is, with figures.', decisions.map(decisionLine)));
const tables = pagesIn('reference').map(({ text, link }) => `- [${text}](${link})`);
write('reference/index', list('Reference', 'Every option, event and command.', tables));
await reference();

/** A page shows each drawing of docs/ in the theme that its reader chose. */
function drawings() {
  const folder = join(pages, 'images');
  for (const name of readdirSync(folder).filter((file) => file.endsWith('.svg'))) {
    const svg = readFileSync(join(folder, name), 'utf8');
    for (const theme of /** @type {const} */ (['light', 'dark']))
      writeFileSync(join(folder, name.replace('.svg', `-${theme}.svg`)), pinned(svg, theme));
  }
}

/** @param {string} source */
function pageOf(source) {
  const text = readFileSync(join(root, source), 'utf8');
  if (source.endsWith('.md')) return linked(forSite(text), source).replaceAll('"docs/images/', '"./images/');
  if (!source.endsWith('.ts')) return `# ${source}\n\n${text}`;
  const name = source.replace('examples/', '');
  return `# ${name}\n\n\`\`\`ts\n${text}\`\`\`\n`;
}

/**
 * The same text, with its links turned to pages of the site.
 * @param {string} text
 * @param {string} source where it is in the repository
 */
function linked(text, source) {
  return text.replaceAll(/\]\((?![a-z]+:|#)([^)#\s]+)(#[^)]*)?\)/gu, (whole, target, hash = '') => {
    const path = posix.normalize(posix.join(posix.dirname(source), target)).replace(/\/$/u, '');
    const place =
      PLACES.get(path) ??
      (path.startsWith('docs/') ? path.replace(/^docs\//u, '').replace(/\.md$/u, '') : undefined);
    if (place === undefined) return `](${codeOf(path)})`;
    return `](/${place.replace(/index$/u, '')}${hash})`;
  });
}

/**
 * Results and sources have no page: the reader is sent to the page of their folder.
 * @param {string} path
 */
function codeOf(path) {
  if (path.startsWith('bench/')) return '/benchmark';
  return path.startsWith('examples/') ? '/examples/' : `/missing/${path}`;
}

/**
 * @param {string} title
 * @param {string} intro
 * @param {string[]} lines
 */
function list(title, intro, lines) {
  return `# ${title}\n\n${intro}\n\n${lines.join('\n')}\n`;
}

/** @param {string} name */
function exampleLine(name) {
  const text = readFileSync(join(root, 'examples', name), 'utf8');
  const about = text
    .split('\n')
    .filter((line) => line.startsWith('// '))
    .map((line) => line.slice(3))
    .find((line) => !line.startsWith('runs in'));
  return `- [${name}](./${name.replace('.ts', '')})${about === undefined ? '' : `: ${about}`}`;
}

/** @param {string} name */
function decisionLine(name) {
  const [title = name] = readFileSync(join(root, 'docs/adr', name), 'utf8').split('\n');
  return `- [${title.replace(/^# /u, '')}](./${name.replace('.md', '')})`;
}

async function reference() {
  const entryPoints = ENTRIES.map((name) =>
    join(root, 'src', name === 'index' ? 'index.ts' : `${name}/index.ts`),
  ).filter((path) => isFile(relative(root, path)));
  /** @type {Partial<import('typedoc').TypeDocOptions> & import('typedoc-plugin-markdown').PluginOptions} */
  const options = {
    entryPoints,
    tsconfig: join(root, 'tsconfig.build.json'),
    plugin: ['typedoc-plugin-markdown'],
    excludePrivate: true,
    excludeInternal: true,
    disableSources: true,
    skipErrorChecking: true,
    readme: 'none',
    entryFileName: 'index',
    hidePageHeader: true,
    hideBreadcrumbs: true,
    logLevel: 'Error',
    outputs: [{ name: 'markdown', path: join(pages, 'api') }],
  };
  const app = await Application.bootstrapWithPlugins(options);
  const project = await app.convert();
  if (project === undefined) throw new Error('the types could not be read');
  for (const module of project.children ?? []) if (module.name === 'index') module.name = 'tidemill';
  await app.generateOutputs(project);
}

/** @param {string} folder @returns {string[]} */
function markdownIn(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return markdownIn(path);
    return path.endsWith('.md') ? [path] : [];
  });
}

/** @param {string} path */
function isFile(path) {
  return statSync(join(root, path), { throwIfNoEntry: false })?.isFile() === true;
}

/** @param {string} place @param {string} text */
function write(place, text) {
  const file = join(pages, `${place}.md`);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}
