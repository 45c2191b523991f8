/** Who may be claimed. For tests that decide by themselves what runs: everything, unless somebody says otherwise. */
export class Admission {
  /** To be called when somebody may be admitted who was not before. */
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
