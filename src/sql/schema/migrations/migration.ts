import type { Names } from '../names.js';

/** One step of the schema. It is never changed once it was released: a correction is another step. */
export interface Migration {
  /** Its place in the list, from 1. */
  readonly version: number;
  readonly name: string;
  /**
   * The oldest version whose programs work on a schema with this step: they may start beside it, as they do while a deployment
   * replaces them one by one. Left out: only programs that know this step may.
   */
  readonly compatibleSince?: number;
  readonly up: (names: Names) => readonly string[];
}
