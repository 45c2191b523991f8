import { defineConfig } from 'tsdown';

// One build of all entries: code that two entries use lands in a shared chunk, so that within a format there is
// one copy of every class. `import('./mongodb/index.js')` becomes a lazy load of the mongodb entry.
export default defineConfig({
  entry: {
    index: 'src/index.ts',
    // The command. Its CommonJS twin comes along with the shared build, and is left out of the package.
    cli: 'src/cli/main.ts',
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
  },
  format: ['esm', 'cjs'],
  tsconfig: 'tsconfig.build.json',
  sourcemap: true,
  // Without maps of their own the declarations would name files that are not there.
  dts: { sourcemap: true },
  // Dependencies and peers stay outside by themselves. parse-duration is ESM only, so the CommonJS build must
  // carry it; bundling anything else by accident fails the build.
  deps: { onlyBundle: ['parse-duration'] },
  // CommonJS is offered on purpose.
  checks: { legacyCjs: false },
});
