import type { Task } from '../core/records/task.js';

/** What reactive tasks tell. Each carries one object. */
export interface TaskEvents {
  'task:start': { readonly task: Task; readonly instanceId: string };
  'task:complete': { readonly task: Task; readonly durationMs: number; readonly instanceId: string };
  'task:fail': {
    readonly task: Task;
    readonly error: Error;
    readonly attempt: number;
    readonly willRetry: boolean;
    readonly durationMs: number;
    readonly instanceId: string;
  };
  'task:retry': { readonly task: Task; readonly runAt: Date; readonly instanceId: string };
  /** The document was gone, did not match any more, or had changed: its handler had nothing to do. */
  'task:skip': { readonly task: Task; readonly instanceId: string };
  'task:defer': { readonly task: Task; readonly runAt: Date; readonly instanceId: string };
  /** This instance plans for the cluster now. */
  'leader:gained': { readonly term: number; readonly instanceId: string };
  'leader:lost': { readonly term: number; readonly reason: string; readonly instanceId: string };
  /** Changes were missed for good; every document is looked at again. */
  'history:lost': { readonly reason: string; readonly tasks: readonly string[]; readonly instanceId: string };
  'reconcile:start': {
    readonly tasks: readonly string[];
    readonly collection: string;
    readonly instanceId: string;
  };
  'reconcile:progress': {
    readonly tasks: readonly string[];
    readonly collection: string;
    readonly processed: number;
    readonly instanceId: string;
  };
  'reconcile:complete': {
    readonly tasks: readonly string[];
    readonly collection: string;
    readonly processed: number;
    readonly instanceId: string;
  };
}
