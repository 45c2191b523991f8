/** What clients of the front door share with it. It is no part of the package's interface. */
export { idText } from './core/paths.js';
