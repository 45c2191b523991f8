/**
 * Document schedules: runs your own documents when the schedule stored in them is due. Works with any store that
 * implements `JobStore`.
 */
export { Scheduler, type StopOptions } from './scheduler.js';
export type {
  DocumentContext,
  DocumentMissedPolicy,
  HookContext,
  ScheduleErrorContext,
  ScheduleOptions,
  SchedulerOptions,
} from './options.js';
export type { DocumentsFilter, DocumentsPage, DocumentsPageOptions, FoundDocument } from './finding.js';
export type {
  DocumentChanges as JobChanges,
  DocumentFailure,
  DocumentFields,
  DocumentJob,
  DocumentJobStore as JobStore,
  DocumentLook,
  DocumentPlace,
  DocumentQuery,
  DocumentState,
  DocumentWatch,
  DocumentWrite,
  Fenced,
  FoundDocuments,
  LockCall,
  Misfit,
  StoreCall,
} from '../store/documents.js';
