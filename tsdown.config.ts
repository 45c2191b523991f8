import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { defineConfig, type UserConfig } from 'tsdown';

const library = {
  index: 'src/index.ts',
  'compat-mongodash': 'src/compat/mongodash/index.ts',
  'compat-mongodash-testing': 'src/compat/mongodash/testing/index.ts',
  'compat-mongodb-cron': 'src/compat/mongodb-cron/index.ts',
  'compat-monque': 'src/compat/monque/index.ts',
  dashboard: 'src/dashboard/index.ts',
  documents: 'src/documents/index.ts',
  embedded: 'src/embedded/index.ts',
  memory: 'src/memory/index.ts',
  mongodb: 'src/mongodb/index.ts',
  postgres: 'src/postgres/index.ts',
  store: 'src/store/index.ts',
  testing: 'src/testing/index.ts',
  // A suite of tests, apart so that nothing else loads it.
  conformance: 'src/testing/conformance/index.ts',
};

/**
 * One set of declarations serves both formats: ES modules may import the types of CommonJS, and no package that these
 * import has classes of its own for each format.
 */
const referToDeclarations = async (folder: string): Promise<void> => {
  for (const name of Object.keys(library))
    await writeFile(join(folder, `${name}.d.mts`), `export * from './${name}.cjs';\n`);
};

/** One copy of the conformance suite serves both formats: it is large, and `require` loads ES modules by now. */
const referToSuite = (folder: string): Promise<void> =>
  writeFile(join(folder, 'conformance.cjs'), "module.exports = require('./conformance.mjs');\n");

/** A folder of CommonJS in a package of ES modules needs a description of its own. */
const describeFolder = (folder: string): Promise<void> =>
  writeFile(join(folder, 'cjs/package.json'), '{ "type": "commonjs", "sideEffects": false }\n');

/**
 * Folders whose modules get chunks of their own: those of entries, which lie outside of the folders of chunks, and what
 * would be larger than 32 kB. A test checks that no chunk imports one that imports it.
 */
const DIVIDED = [
  'src/engine/limits',
  'src/engine/claim',
  'src/engine',
  'src/maintenance',
  'src/mill/limits',
  'src/documents',
  'src/reactive/planner/chores',
  'src/reactive/planner',
  'src/reactive',
  'src/metrics',
  'src/sql/schema/migrations',
  'src/sql/limits',
  'src/sql/jobs',
  'src/sql/reactive/feed',
  'src/sql/reactive/plan',
  'src/sql/reactive/query',
  'src/postgres',
  'src/embedded',
  'src/mongodb/reactive/plan',
  'src/mongodb/reactive/query',
  'src/mongodb',
  'src/dashboard/kinds',
  'src/dashboard/http',
  'src/dashboard',
];

/** Folders that are too large for one chunk, and whose files need each other in one direction only. */
const SPLIT: ReadonlySet<string> = new Set(['src/sql/jobs', 'src/sql/schema/migrations']);
/** Bytes of source that are less than 32 kB of output. */
const MOST_SOURCE = 45_000;

/**
 * Chunks have the same name in both formats, in a folder for each: npm packs files of the same name one after the other,
 * and gzip then finds most of the second in the first. Beyond 32 kB it does not look, so large chunks are divided.
 */
const outputOptions: NonNullable<UserConfig['outputOptions']> = (options, format, { cjsDts }) =>
  cjsDts
    ? options
    : {
        ...options,
        chunkFileNames: ({ name, moduleIds }) => `${format}/${nameOf(moduleIds.at(-1)) ?? name}.js`,
        codeSplitting: {
          groups: DIVIDED.map((folder) => ({
            name: folder,
            test: (id: string) => relative(import.meta.dirname, id).startsWith(`${folder}/`),
            entriesAware: true,
            ...(SPLIT.has(folder) ? { maxSize: MOST_SOURCE } : {}),
          })),
        },
      };

const nameOf = (module: string | undefined): string | undefined =>
  module === undefined || !module.includes('/src/')
    ? undefined
    : relative(join(import.meta.dirname, 'src'), module)
        .replace(/\.ts$/u, '')
        .replaceAll('/', '-');

const GETTER =
  /Object\.defineProperty\(exports,`(\w+)`,\{enumerable:!0,get:function\(\)\{return ([\w$]+)\}\}\)/gu;
const GETTERS = new RegExp(`${GETTER.source}(?:,${GETTER.source})+`, 'gu');

/** Writes the exports of CommonJS chunks as one table of getters: their names are all that differs. */
async function shortenExports(folder: string): Promise<void> {
  const chunks = join(folder, 'cjs');
  for (const file of (await readdir(chunks)).filter((name) => name.endsWith('.js'))) {
    const text = await readFile(join(chunks, file), 'utf8');
    const shortened = text.replaceAll(GETTERS, (exported) => {
      const table = [...exported.matchAll(GETTER)].map(([, name, local]) => `${name}:()=>${local}`);
      return `Object.entries({${table.join()}}).forEach(([e,t])=>Object.defineProperty(exports,e,{enumerable:!0,get:t}))`;
    });
    await writeFile(join(chunks, file), shortened);
  }
}

// One build of all entries: code that two entries use lands in a shared chunk, so that within a format there is
// one copy of every class. `import('./mongodb/index.js')` becomes a lazy load of the mongodb entry.
export default defineConfig({
  entry: library,
  format: {
    esm: {
      // A worker thread can load an ES module for both formats.
      entry: { ...library, cli: 'src/cli/main.ts', thread: 'src/jobs/run/thread-entry.ts' },
      dts: false,
      hooks: { 'build:done': ({ options: { outDir } }) => referToDeclarations(outDir) },
    },
    cjs: {
      hooks: {
        'build:done': async ({ options: { outDir } }) => {
          await referToSuite(outDir);
          await describeFolder(outDir);
          await shortenExports(outDir);
        },
      },
    },
  },
  tsconfig: 'tsconfig.build.json',
  // What the command shares with the library must not land in the command's own file: to import that is to run it.
  inputOptions: { preserveEntrySignatures: 'strict' },
  outputOptions,
  // The package is minified (docs/adr/0021-weight.md). Classes and public methods keep their names, which `error.name`
  // and stack traces show.
  minify: {
    compress: { keepNames: { function: false, class: true } },
    mangle: { toplevel: true, keepNames: { function: false, class: true } },
  },
  // For whoever reads a stack trace beside the repository. They stay out of the package, so nothing refers to them.
  sourcemap: 'hidden',
  dts: { sourcemap: false },
  // Dependencies and peers stay outside by themselves. parse-duration is ESM only, so the CommonJS build must
  // carry it; bundling anything else by accident fails the build.
  deps: { onlyBundle: ['parse-duration'] },
  // CommonJS is offered on purpose.
  checks: { legacyCjs: false },
});
