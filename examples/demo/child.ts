// A worker or a producer as a process of its own; processes.ts starts it.
import type { Report, Role } from './crew.js';
import { databaseAt } from './databases.js';
import { startPart } from './part.js';

const LAST_RESORT_MS = 7_000;

const [role, name = ''] = process.argv.slice(2);
const { DEMO_URL: url = '', DEMO_SPACE: space = '' } = process.env;

// Ctrl-C reaches the whole process group, but the parent decides the order of the end: children ignore it and wait for
// the channel to close, which also happens when the parent dies.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => undefined);
const parentGone = new Promise<void>((resolve) => {
  const gone = (): void => {
    // Without the parent there may be no server either, and nothing to wait for.
    setTimeout(() => process.exit(1), LAST_RESORT_MS).unref();
    resolve();
  };
  // It may have gone while this file was being loaded.
  if (process.connected) process.once('disconnect', gone);
  else gone();
});

const store = databaseAt(url)!.store(url, space);
const part = await startPart(role as Role, { name, store, tell });
tell({ kind: 'ready' });
await parentGone;
await part.stop('4s');

/** What happens after the channel closed, during the stop, nobody hears. */
function tell(report: Report): void {
  if (process.connected) process.send?.(report, undefined, undefined, () => undefined);
}
