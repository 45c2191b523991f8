/** A worker or a producer as a process of its own, started by processes.ts. */
import type { Report, Role } from './crew.js';
import { startPart } from './part.js';
import { openPlace } from './place.js';

const LAST_RESORT_MS = 7_000;

export async function runPart(role: Role, name: string): Promise<void> {
  // Ctrl-C reaches the whole process group, but the parent decides in which order processes stop. Children ignore the
  // signal and wait for the channel to close, which also happens when the parent dies.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => undefined);
  const { TIDEMILL_DEMO_URL: url = '', TIDEMILL_DEMO_SPACE: space = '' } = process.env;
  const gone = parentGone();
  const part = await startPart(role, { name, store: await openPlace({ url, space }), space, tell });
  tell({ kind: 'ready' });
  await gone;
  await part.stop('4s');
}

const parentGone = (): Promise<void> =>
  new Promise((resolve) => {
    const gone = (): void => {
      // Without the parent the server may be gone too, and a stop could wait forever.
      setTimeout(() => process.exit(1), LAST_RESORT_MS).unref();
      resolve();
    };
    // The parent may have gone while this program was being loaded.
    if (process.connected) process.once('disconnect', gone);
    else gone();
  });

/** Reports from the stop itself, after the channel has closed, are dropped. */
function tell(report: Report): void {
  if (process.connected) process.send?.(report, undefined, undefined, () => undefined);
}
