/**
 * What may go wrong in a run. Each kind can be switched off by its name. `filter`, `version`, `limits` and `partitions`
 * are not faults that happen: they are about what deployments define.
 */
export const FAULTS = [
  'crash',
  'pause',
  'cut',
  'outage',
  'clock',
  'poison',
  'deploy',
  'prepare',
  'history',
  'reconcile',
  'chores',
  'weather',
  'filter',
  'version',
  'limits',
  'partitions',
] as const;
export type Fault = (typeof FAULTS)[number];

export const isFault = (name: string): name is Fault => FAULTS.some((fault) => fault === name);
const DEFINED: readonly Fault[] = ['filter', 'version', 'limits', 'partitions'];
export const strikes = (fault: Fault): boolean => !DEFINED.includes(fault);
