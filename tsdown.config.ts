import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { defineConfig } from 'tsdown';

const library = {
  index: 'src/index.ts',
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

// One build of all entries: code that two entries use lands in a shared chunk, so that within a format there is
// one copy of every class. `import('./mongodb/index.js')` becomes a lazy load of the mongodb entry.
export default defineConfig({
  entry: library,
  format: {
    esm: {
      entry: { ...library, cli: 'src/cli/main.ts' },
      dts: false,
      hooks: { 'build:done': ({ options: { outDir } }) => referToDeclarations(outDir) },
    },
    cjs: { hooks: { 'build:done': ({ options: { outDir } }) => referToSuite(outDir) } },
  },
  tsconfig: 'tsconfig.build.json',
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
