/** The result of one piece: the items to try again, and the error if the store failed. */
export interface Tried<T> {
  readonly left: readonly T[];
  readonly trouble?: unknown;
}

export interface Round<T> extends Tried<T> {
  /** The part of `left` on which the store failed. The rest was not tried, or must be decided again. */
  readonly troubled: readonly T[];
  /** Items on which the store failed although they were alone in their piece. */
  readonly alone: readonly T[];
  /** The store answered for at least one piece. */
  readonly answered: boolean;
}

/** After this many failed pieces in a row the store itself is at fault, and the rest is not tried. */
const ENOUGH = 2;

/**
 * Tries items in pieces, so that one item on which the store always fails does not block the others. Pieces double in
 * size until the first failure. Failed items come last in `left`, so that the others go first next time.
 */
export async function inPieces<T>(
  items: readonly T[],
  firstSize: number,
  attempt: (piece: readonly T[]) => Promise<Tried<T>>,
): Promise<Round<T>> {
  const troubled: T[] = [];
  const alone: T[] = [];
  const again: T[] = [];
  let [at, size, inARow, answered] = [0, firstSize, 0, false];
  let trouble: unknown;
  while (at < items.length && inARow < ENOUGH) {
    const piece = items.slice(at, at + size);
    at += piece.length;
    const tried = await attempt(piece);
    if (tried.trouble === undefined) again.push(...tried.left);
    else troubled.push(...tried.left);
    if (tried.trouble !== undefined && piece.length === 1) alone.push(...tried.left);
    trouble ??= tried.trouble;
    inARow = tried.trouble === undefined ? 0 : inARow + 1;
    answered ||= tried.trouble === undefined;
    if (trouble === undefined) size *= 2;
  }
  const left = [...items.slice(at), ...again, ...troubled];
  return { left, troubled, alone, answered, trouble };
}
