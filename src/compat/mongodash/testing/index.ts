/** `tidemill/compat/mongodash/testing`: the names of `mongodash/testing`. */
export { configureForTesting } from '../reactive-tasks.js';
export {
  assertNoReactiveTaskErrors,
  resolveWhitelistFilter,
  waitUntil,
  waitUntilReactiveTasksIdle,
  type AssertNoReactiveTaskErrorsOptions,
  type WaitUntilOptions,
  type WaitUntilReactiveTasksIdleOptions,
  type WhitelistResolution,
  type WhitelistRule,
} from './helpers.js';
