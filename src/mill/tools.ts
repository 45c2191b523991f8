/** Helpers that the dashboard and the command line share with the front door. Not part of the public interface. */
export { audited, type Done } from './insight/audit.js';
export { durationText, limitsText, limitTitle } from './limits/words.js';
export { hideParameters, hideUserinfo, SECRET_PARAMETER, urlParts } from '../core/text/credentials.js';
export { isBackCursor } from '../core/cursor.js';
export { reasonOf } from '../core/errors.js';
export { groupFailures, patternOf } from '../core/records/failure-groups.js';
export { isFieldPath, type FieldValues, type Scalar } from '../core/fields.js';
export { scheduleId } from '../core/records/job.js';
export { forConsole } from '../core/logger.js';
export {
  checkBoolean,
  checkFunction,
  checkInteger,
  checkKeys,
  checkText,
  show,
  suggestion,
} from '../core/options.js';
export { shellArgument } from '../core/text/shell.js';
export { idText } from '../core/text/paths.js';
export { versionOf } from '../version.js';
export {
  openMongoSource,
  openPostgresSource,
  type MongoSource,
  type SourceDocument,
  type SourceRow,
} from './opening/open-source.js';
export { checkPayload } from '../core/payload.js';
export { checkName } from '../core/options.js';
export { parseSchedule } from '../time/interval.js';
export { retryRule } from '../time/retry.js';
export { NEVER } from '../core/records/job.js';
export type { NewJob, Past } from '../store/port.js';
