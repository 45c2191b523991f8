/** What clients of the front door share with it. It is no part of the package's interface. */
export { reasonOf } from './core/errors.js';
export { groupFailures } from './core/failure-groups.js';
export { isFieldPath, type FieldValues, type Scalar } from './core/fields.js';
export { checkBoolean, checkFunction, checkKeys, checkText, show } from './core/options.js';
export { idText } from './core/paths.js';
export { versionOf } from './version.js';
