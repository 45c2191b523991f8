import { Arguments } from '../tables/arguments.js';

/** Collects the values of a statement. Each is a parameter of its own: a text, cast where it is used. */
export class DocumentParameters extends Arguments {
  override add(value: string | null, type: string): string {
    this.texts.push(value);
    return `($${String(this.texts.length)}::text::${type})`;
  }
}
