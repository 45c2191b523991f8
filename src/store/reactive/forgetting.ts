/**
 * The port for removing a reactive task that left the code. `tasks.forget()` calls the methods in the order in which
 * they stand here. Each may be repeated: after a crash, `tasks.forget()` of the same name begins anew and finishes.
 */
import type { Source } from './source.js';

export interface ForgettingStore {
  /**
   * Ends the planning of a task: deletes its state, the documents that were set aside for it, and its pause.
   * Definitions stay, because they tell where the records are.
   * Returns false if the store knows nothing of the task. Repeat: safe.
   */
  retire(task: string): Promise<boolean>;
  /**
   * Deletes up to `limit` records of a task, in any state, wherever its definitions say, and in `source`.
   * Returns how many it deleted; fewer than `limit` if none is left. Repeat: safe.
   */
  deleteRecords(task: string, limit: number, source?: Source): Promise<number>;
  /**
   * Deletes the definitions of a task and, if no other task is defined on its source, the progress of a reconciliation
   * and the triggers. Repeat: no effect.
   * Errors: an `OptionError` if a right is missing.
   */
  deleteDefinitions(task: string): Promise<void>;
}
