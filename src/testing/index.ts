/** For tests: a clock that the test moves. */
export { virtualClock, type VirtualClock } from './virtual-clock.js';
