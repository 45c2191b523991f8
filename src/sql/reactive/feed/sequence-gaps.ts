/** A span of numbers, both ends included. */
type Span = [from: number, to: number];

/**
 * Which changes were read. Transactions commit in any order, so there is no number up to which all were: what was read
 * is kept as spans, and what is missing between them is asked for until it cannot come any more. So nothing that was
 * read is read again, deleted or not, and no dead row is ever walked over.
 */
export class SequenceGaps {
  #spans: Span[] = [];
  /** All up to here are decided: read, or never to come. */
  #low = 0;
  /** Read and not deleted yet, in the order of reading; the first of them has the number `#forgotten`. */
  #unsaved: number[] = [];
  #forgotten = 0;

  /** The place of the newest change that was read. */
  get end(): number {
    return this.#forgotten + this.#unsaved.length;
  }

  /** Spans in which something may be that was not read; the last has no end. */
  gaps(): readonly { readonly lo: number; readonly hi: number }[] {
    const gaps: { lo: number; hi: number }[] = [];
    let lo = this.#low + 1;
    for (const [from, to] of this.#spans) {
      if (from > lo) gaps.push({ lo, hi: from - 1 });
      lo = to + 1;
    }
    return [...gaps, { lo, hi: Number.MAX_SAFE_INTEGER }];
  }

  add(seq: number): void {
    this.#unsaved.push(seq);
    let at = this.#spans.length;
    while (at > 0 && (this.#spans[at - 1] as Span)[0] > seq) at -= 1;
    this.#spans.splice(at, 0, [seq, seq]);
    this.#join(at);
    this.#join(at - 1);
  }

  /** Joins a span with the next one where they touch. */
  #join(at: number): void {
    const [one, next] = [this.#spans[at], this.#spans[at + 1]];
    if (one === undefined || next === undefined || one[1] + 1 !== next[0]) return;
    this.#spans.splice(at, 2, [one[0], next[1]]);
  }

  /** Nothing more can come up to here. */
  decided(low: number): void {
    this.#low = Math.max(this.#low, low);
    this.#spans = this.#spans.flatMap(([from, to]): Span[] =>
      to <= this.#low ? [] : [[Math.max(from, this.#low + 1), to]],
    );
  }

  /** What was read up to a place, and is not deleted yet. */
  unsaved(place: number): readonly number[] {
    return this.#unsaved.slice(0, Math.max(0, place - this.#forgotten));
  }

  deleted(place: number): void {
    const gone = this.#unsaved.splice(0, Math.max(0, place - this.#forgotten));
    this.#forgotten += gone.length;
  }
}

/** A resume point: all that this ledger has read up to a place. What follows it is in the table still. */
export class Position {
  readonly place: number;
  readonly #gaps: SequenceGaps;

  constructor(gaps: SequenceGaps, place: number) {
    this.#gaps = gaps;
    this.place = place;
  }

  get unsaved(): readonly number[] {
    return this.#gaps.unsaved(this.place);
  }

  deleted(): void {
    this.#gaps.deleted(this.place);
  }
}
