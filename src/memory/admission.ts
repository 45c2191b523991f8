/** Decides which work may be claimed, for tests that control what runs. Default: all work. */
export class Admission {
  /** Wakes instances. Call it when work may be admitted that was not before. */
  readonly changed: () => void;
  #admits: (id: string) => boolean = () => true;

  constructor(changed: () => void) {
    this.changed = changed;
  }

  admits(id: string): boolean {
    return this.#admits(id);
  }

  let(admits: (id: string) => boolean): void {
    this.#admits = admits;
    this.changed();
  }
}
