/** Maintenance work on many documents that proceeds one page at a time. */
export interface Chore {
  /** Identifies the work; there is one chore per key at a time. */
  readonly key: string;
  /** The approximate number of documents to process. */
  readonly size: number;
  /** Each step processes one page and yields how many documents it had. */
  readonly pages: AsyncGenerator<number, void>;
  /** False if the work has become pointless. */
  readonly isMeant: () => boolean;
  readonly failed: (problem: unknown) => void;
  /** Called when it has ended, whether or not it succeeded. */
  readonly over: () => void;
}

interface Entry {
  readonly chore: Chore;
  lastTurn: number;
}

/** Picks the next chore: the one that has waited longest and, among those that have not begun, the smallest. */
export class ChoreTurns {
  readonly #entries = new Map<string, Entry>();
  #count = 0;

  has(key: string): boolean {
    return this.#entries.has(key);
  }

  add(chore: Chore): void {
    this.#entries.set(chore.key, { chore, lastTurn: 0 });
  }

  delete(key: string): void {
    this.#entries.delete(key);
  }

  next(): Chore | undefined {
    const [first] = [...this.#entries.values()].sort(
      (a, b) => a.lastTurn - b.lastTurn || a.chore.size - b.chore.size,
    );
    if (first === undefined) return undefined;
    this.#count += 1;
    first.lastTurn = this.#count;
    return first.chore;
  }
}

const FIRST = 500;
const MOST = 1_000;
/** Documents can be so slow that a few of them fill a page's time. */
const LEAST = 10;
/** Live changes of the same task wait while a page is planned, so a page should take no longer than this. */
const TARGET_MS = 500;
/** At a low rate pages are small, so that the pauses between them stay short. */
const PAGES_PER_SECOND = 4;

/** The number of documents of a page, adapted to how long the last one took. */
export class PageSize {
  readonly #most: number;
  #size: number;

  constructor(perSecond: number = Infinity, first: number = FIRST) {
    this.#most = Math.max(1, Math.min(MOST, Math.floor(perSecond / PAGES_PER_SECOND)));
    this.#size = Math.min(Math.max(first, LEAST), this.#most);
  }

  get size(): number {
    return this.#size;
  }

  took(ms: number): void {
    if (ms > TARGET_MS) this.#size = Math.max(Math.min(LEAST, this.#most), Math.floor(this.#size / 2));
    else if (ms < TARGET_MS / 2) this.#size = Math.min(this.#most, this.#size * 2);
  }
}
