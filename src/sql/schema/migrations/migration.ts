import type { Names } from '../names.js';

/** One step of the schema. It never changes once it is released; a correction is another step. */
export interface Migration {
  /** Its position in the list, from 1. */
  readonly version: number;
  readonly name: string;
  /**
   * The oldest version of the schema whose code works with this step. Such instances may start beside it, as during a
   * rolling deployment. Absent: only code that knows this step works with it.
   */
  readonly compatibleSince?: number;
  readonly up: (names: Names) => readonly string[];
}
