import { noMeter, type Meter } from '../../core/meter.js';
import type { Tracer } from '../../core/tracer.js';
import type { Conclusion } from './conclude.js';

/** Who counts and traces the runs of one scheduler, and under which name. */
export interface Measures {
  readonly name: string;
  readonly meter: Meter;
  readonly tracer: () => Tracer | undefined;
}

export const noMeasures: Measures = { name: '', meter: noMeter, tracer: () => undefined };

/** A run that failed is tried again where its document says so; or says nothing, and its lock ends by itself. */
export function isRetried(conclusion: Conclusion | null): boolean {
  if (conclusion === null) return true;
  const { ending } = conclusion;
  return 'changes' in ending && ending.changes.failure?.ended === false;
}
