/** What may go wrong in a run. Each kind can be left out by its name. */
export const FAULTS = [
  'crash',
  'pause',
  'cut',
  'outage',
  'clock',
  'poison',
  'deploy',
  'history',
  'reconcile',
  'weather',
  'filter',
] as const;
export type Fault = (typeof FAULTS)[number];

/**
 * Left out unless they are asked for. `filter`: a leader that takes over another filter plans by it, and moves the resume
 * point, before it has stored that this filter is in force.
 */
export const OFF: readonly Fault[] = ['filter'];

export const isFault = (name: string): name is Fault => FAULTS.some((fault) => fault === name);
