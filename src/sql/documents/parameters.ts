import { Arguments } from '../tables/arguments.js';

/** Gathers the values of a statement; each is a parameter of its own, a text that is cast where it is used. */
export class Parameters extends Arguments {
  override add(value: string | null, type: string): string {
    this.texts.push(value);
    return `($${String(this.texts.length)}::text::${type})`;
  }
}
