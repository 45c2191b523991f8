import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import SlowFirst from './test/support/slow-first.js';

const src = (path: string): string => fileURLToPath(new URL(`src/${path}`, import.meta.url));

// Type tests (test/types/*.test-d.ts) are checked by `npm run types`, not run here.
export default defineConfig({
  resolve: {
    // The package by its name is its source, as in tsconfig.json.
    alias: [
      { find: /^tidemill$/, replacement: src('index.ts') },
      {
        find: /^tidemill\/(dashboard|documents|embedded|memory|mongodb|postgres|store|testing(?:\/conformance)?)$/,
        replacement: src('$1/index.ts'),
      },
      { find: /^tidemill\/(compat\/[a-z-]+(?:\/testing)?)$/, replacement: src('$1/index.ts') },
      { find: /^@\//, replacement: fileURLToPath(new URL('examples/frameworks/nextjs/', import.meta.url)) },
    ],
  },
  test: {
    include: ['test/**/*.test.ts'],
    // Starts one MongoDB replica set and one PostgreSQL for the whole run, and provides their addresses.
    globalSetup: 'test/support/global-setup.ts',
    pool: 'forks',
    // Files of one worker share their modules: loading sources and drivers anew in each file took a tenth of the run.
    isolate: false,
    setupFiles: 'test/support/setup.ts',
    restoreMocks: true,
    // Much of a run is waiting for leases and polls, so five keep two cores busy. They share one server of each kind.
    maxWorkers: 5,
    sequence: { sequencer: SlowFirst },
    // For whatever hangs. A test that waits in vain says so itself, earlier.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    // Libraries whose originals run beside ours leave rejections behind when their client is closed.
    onUnhandledError: ({ name, stack = '' }) =>
      name !== 'MongoClientClosedError' || !stack.includes('/test/originals/node_modules/'),
    coverage: { provider: 'v8', include: ['src/**'] },
  },
});
