import type { Names } from '../names.js';

/** One step of the schema. It is never changed once it was released: a correction is another step. */
export interface Migration {
  /** Its place in the list, from 1. */
  readonly version: number;
  readonly name: string;
  readonly up: (names: Names) => readonly string[];
}
