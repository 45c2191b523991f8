/** What happened, as one number that distinguishes two runs; the last lines are kept for people. */
const KEPT = 400;

export class Trace {
  #hash = 0x811c9dc5;
  #count = 0;
  readonly #last: string[] = [];
  /** Set to see everything as it happens. */
  print: ((line: string) => void) | undefined;

  add(line: string): void {
    this.#count += 1;
    for (let at = 0; at < line.length; at += 1)
      this.#hash = Math.imul(this.#hash ^ line.charCodeAt(at), 0x01000193) >>> 0;
    this.print?.(line);
    this.#last.push(line);
    if (this.#last.length > 2 * KEPT) this.#last.splice(0, KEPT);
  }

  get hash(): string {
    return `${this.#hash.toString(16).padStart(8, '0')}-${String(this.#count)}`;
  }

  get last(): readonly string[] {
    return this.#last.slice(-KEPT);
  }
}
