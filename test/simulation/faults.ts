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
  'chores',
  'weather',
  'filter',
] as const;
export type Fault = (typeof FAULTS)[number];

export const isFault = (name: string): name is Fault => FAULTS.some((fault) => fault === name);
