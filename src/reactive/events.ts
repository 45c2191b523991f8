import type { Task } from '../core/records/task.js';

/** Events of reactive tasks. Each carries one object. */
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
  /** The document was gone, no longer matched or had changed, so there was nothing to do. */
  'task:skip': { readonly task: Task; readonly instanceId: string };
  'task:defer': { readonly task: Task; readonly runAt: Date; readonly instanceId: string };
  /** This instance now plans for the cluster. */
  'leader:gained': { readonly term: number; readonly instanceId: string };
  'leader:lost': { readonly term: number; readonly reason: string; readonly instanceId: string };
  /** Changes were missed for good; the leader reconciles every document of `tasks`. */
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
