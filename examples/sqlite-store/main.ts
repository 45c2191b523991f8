// runs in: npm run check
// The conformance suite over the SQLite store, with node:test.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { testStore } from 'tidemill/testing/conformance';
import { SqliteStore } from './store.js';

const folder = mkdtempSync(join(tmpdir(), 'tidemill-sqlite-'));
after(() => rmSync(folder, { recursive: true }));

let files = 0;
const { run, leftOut } = testStore({
  describe,
  it,
  open: () => new SqliteStore(join(folder, `${String((files += 1))}.db`)),
  without: ['transactions', 'schedules', 'locks', 'metrics', 'audit', 'reactive', 'limits', 'replacing'],
});
console.log(`${String(run.length)} facts to prove, ${String(leftOut.length)} left out`);
