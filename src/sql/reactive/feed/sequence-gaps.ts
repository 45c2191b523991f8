/** A range of numbers, both ends included. */
type Span = [from: number, to: number];

/**
 * Which changes were read. Transactions commit in any order, so there is no number up to which all have been read. What
 * was read is kept as spans, and the gaps between them are queried until nothing can arrive in them any more. So no
 * change is read twice, whether deleted or not, and no query walks over dead rows.
 */
export class SequenceGaps {
  #spans: Span[] = [];
  /** Every number up to here is decided: read, or never to come. */
  #low = 0;
  /**
   * Read and not deleted yet, in the order of reading. `#forgotten` is how many were deleted before the first of them.
   */
  #unsaved: number[] = [];
  #forgotten = 0;

  /** The place of the newest change that was read: how many were read so far. */
  get end(): number {
    return this.#forgotten + this.#unsaved.length;
  }

  /** Spans that may hold changes not read yet; the last one has no end. */
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
    this.skip(seq);
  }

  /** Notes a change that was seen and belongs to another reader, which deletes it. */
  skip(seq: number): void {
    let at = this.#spans.length;
    while (at > 0 && (this.#spans[at - 1] as Span)[0] > seq) at -= 1;
    this.#spans.splice(at, 0, [seq, seq]);
    this.#join(at);
    this.#join(at - 1);
  }

  /** Joins a span with the next one if they touch. */
  #join(at: number): void {
    const [one, next] = [this.#spans[at], this.#spans[at + 1]];
    if (one === undefined || next === undefined || one[1] + 1 !== next[0]) return;
    this.#spans.splice(at, 2, [one[0], next[1]]);
  }

  /** No more changes can arrive up to this number. */
  decided(low: number): void {
    this.#low = Math.max(this.#low, low);
    this.#spans = this.#spans.flatMap(([from, to]): Span[] =>
      to <= this.#low ? [] : [[Math.max(from, this.#low + 1), to]],
    );
  }

  /** Changes that were read up to a place and are not deleted yet. */
  unsaved(place: number): readonly number[] {
    return this.#unsaved.slice(0, Math.max(0, place - this.#forgotten));
  }

  deleted(place: number): void {
    const gone = this.#unsaved.splice(0, Math.max(0, place - this.#forgotten));
    this.#forgotten += gone.length;
  }
}

/** A resume point: everything read up to a place. What follows is still in the table. */
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
