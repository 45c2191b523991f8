import { noMeter, type Meter } from '../../core/meter.js';
import type { Tracer } from '../../core/tracer.js';
import type { Conclusion } from './conclude.js';

/** Meter and tracer of one scheduler's runs, and the name they are recorded under. */
export interface Measures {
  readonly name: string;
  readonly meter: Meter;
  readonly tracer: () => Tracer | undefined;
}

export const noMeasures: Measures = { name: '', meter: noMeter, tracer: () => undefined };

/** True if a failed run is retried: the document says so, or nothing is written and its lock ends by itself. */
export function isRetried(conclusion: Conclusion | null): boolean {
  if (conclusion === null) return true;
  const { ending } = conclusion;
  return 'changes' in ending && ending.changes.failure?.ended === false;
}
