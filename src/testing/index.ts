/** `tidemill/testing`: a clock that the test moves, a mill that runs work only when told to, and assertions. */
export { virtualClock, type VirtualClock } from './virtual-clock.js';
export { testMill, TestMill, type TestDrainOptions, type TestMillOptions } from './test-mill.js';
export { drain, runDue, type MillDrainOptions } from './drain.js';
export type { Drained, DrainOptions } from './idle.js';
export { expectEnqueued, expectNotEnqueued, type Expected } from './expectations.js';
