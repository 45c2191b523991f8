import { mongodb, type MongodbStore } from 'tidemill/mongodb';
import type { Tidemill } from 'tidemill';

/** What a child tells the parent. */
export type Report =
  | { readonly kind: 'ready' }
  | { readonly kind: 'repeat' | 'retry' | 'pulse'; readonly count: number }
  | { readonly kind: 'recovered'; readonly count: number };

export const name = process.argv[2] ?? 'nobody';

export const openStore = (): MongodbStore =>
  mongodb({ uri: process.env['DEMO_URI'] ?? '', database: process.env['DEMO_DATABASE'] ?? '' });

/** What happens after the channel closed, during the stop, nobody hears. */
export function tell(report: Report): void {
  if (process.connected) process.send?.(report, undefined, undefined, () => undefined);
}

const LAST_RESORT_MS = 7_000;

/**
 * Ctrl-C reaches the whole process group, but the parent decides the order of the end: children ignore it and wait for
 * the channel to close, which also happens when the parent dies.
 */
export function untilTold(mill: Tidemill<MongodbStore>, before: () => void = () => undefined): void {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => undefined);
  process.once('disconnect', () => {
    before();
    void mill.stop({ timeout: '4s' }).finally(() => process.exit());
    // Without the parent there may be no server either, and nothing to wait for.
    setTimeout(() => process.exit(1), LAST_RESORT_MS).unref();
  });
}
