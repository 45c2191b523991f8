import type { Task } from '../core/records/task.js';

/** Events of reactive tasks. Each carries one object. */
export interface TaskEvents {
  /** The handler of a task is about to be called. */
  'task:start': { readonly task: Task; readonly instanceId: string };
  /** The task ended as completed. */
  'task:complete': { readonly task: Task; readonly durationMs: number; readonly instanceId: string };
  /** An attempt failed; emitted for every failed attempt, the last one included. */
  'task:fail': {
    readonly task: Task;
    readonly error: Error;
    readonly attempt: number;
    readonly willRetry: boolean;
    readonly durationMs: number;
    readonly instanceId: string;
  };
  /** Follows `task:fail` if the task will run again. */
  'task:retry': { readonly task: Task; readonly runAt: Date; readonly instanceId: string };
  /** The document was gone, no longer matched or had changed, so there was nothing to do. */
  'task:skip': { readonly task: Task; readonly instanceId: string };
  /** The handler deferred the task. */
  'task:defer': { readonly task: Task; readonly runAt: Date; readonly instanceId: string };
  /** This instance now plans for the cluster: one partition of the documents, which is all of them by default. */
  'leader:gained': { readonly term: number; readonly partition: number; readonly instanceId: string };
  /** This instance no longer plans that partition. */
  'leader:lost': {
    readonly term: number;
    readonly partition: number;
    readonly reason: string;
    readonly instanceId: string;
  };
  /** Changes were missed for good; the leader reconciles every document of `tasks`. */
  'history:lost': { readonly reason: string; readonly tasks: readonly string[]; readonly instanceId: string };
  /** The leader begins to look at all documents of a source again. */
  'reconcile:start': {
    readonly tasks: readonly string[];
    readonly collection: string;
    readonly instanceId: string;
  };
  /** A part of them is done; `processed` counts the documents so far. */
  'reconcile:progress': {
    readonly tasks: readonly string[];
    readonly collection: string;
    readonly processed: number;
    readonly instanceId: string;
  };
  /** All of them are done. */
  'reconcile:complete': {
    readonly tasks: readonly string[];
    readonly collection: string;
    readonly processed: number;
    readonly instanceId: string;
  };
}
