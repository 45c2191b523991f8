/**
 * Searches in error texts. The store compares the whole text, but a viewer sees it without its secrets. Items that
 * match only in a hidden part are passed over; otherwise a search would reveal it letter by letter.
 */
import type { RequestContext } from '../request-context.js';
import { isBackCursor } from '../../mill/tools.js';
import { tooLong } from '../http/errors.js';

export interface Page<T> {
  readonly items: readonly T[];
  readonly next: string | null;
  readonly previous: string | null;
  readonly partial?: boolean;
}

interface PageRequest {
  readonly limit: number;
  readonly cursor?: string;
}

export interface Search<T> {
  /** Undefined: no search by error text. */
  readonly error: string | undefined;
  readonly textOf: (item: T) => string | undefined;
  readonly find: (page: PageRequest) => Promise<Page<T>>;
}

const BATCH = 500;
const LONGEST_MS = 5_000;

/** Whether the search text occurs in what the viewer is shown. Case does not matter, as in the stores. */
export const isShown = <T>({ redactor }: RequestContext, { error, textOf }: Search<T>, item: T): boolean =>
  error === undefined ||
  redactor
    .text(textOf(item) ?? '')
    .toLowerCase()
    .includes(error.toLowerCase());

const request = (limit: number, cursor: string | null | undefined): PageRequest => ({
  limit,
  ...(cursor === null || cursor === undefined ? {} : { cursor }),
});

/** Part of a list, read in the direction of its cursor. */
interface Batch<T> {
  readonly from: string | undefined;
  /** In the order in which they were read, in either direction. */
  readonly items: readonly T[];
  readonly ahead: string | null;
  readonly behind: string | null;
  readonly partial: boolean;
}

/** An item that the viewer may see, and where it was read. */
interface Shown<T> {
  readonly item: T;
  readonly batch: Batch<T>;
  readonly at: number;
}

/** Reads a list in one direction. Its cursors are those of shown items: any other would reveal a hidden match. */
class PageWalk<T> {
  readonly #context: RequestContext;
  readonly #search: Search<T>;
  readonly #back: boolean;

  constructor(context: RequestContext, search: Search<T>, back: boolean) {
    this.#context = context;
    this.#search = search;
    this.#back = back;
  }

  /** Returns up to `limit` shown items, and at least one more if there are more. `ended` is false if time ran out. */
  async shown(
    limit: number,
    cursor: string | undefined,
  ): Promise<{ readonly shown: readonly Shown<T>[]; readonly ended: boolean; readonly partial: boolean }> {
    const end = performance.now() + LONGEST_MS;
    let batch = await this.#read(limit, cursor);
    const shown = this.#shownOf(batch);
    while (batch.ahead !== null && !batch.partial && shown.length <= limit && performance.now() < end) {
      batch = await this.#read(BATCH, batch.ahead);
      shown.push(...this.#shownOf(batch));
    }
    return { shown, ended: batch.ahead === null || shown.length > limit, partial: batch.partial };
  }

  async ahead({ batch, at }: Shown<T>): Promise<string | null> {
    const known = at === batch.items.length - 1;
    return known ? batch.ahead : (await this.#read(at + 1, batch.from)).ahead;
  }

  async behind({ batch, at }: Shown<T>): Promise<string | null> {
    if (at === 0) return batch.behind;
    const { ahead } = await this.#read(at, batch.from);
    return ahead === null ? null : (await this.#read(1, ahead)).behind;
  }

  #shownOf(batch: Batch<T>): Shown<T>[] {
    return batch.items.flatMap((item, at) =>
      isShown(this.#context, this.#search, item) ? [{ item, batch, at }] : [],
    );
  }

  async #read(limit: number, from: string | undefined): Promise<Batch<T>> {
    const { items, next, previous, partial = false } = await this.#search.find(request(limit, from));
    return this.#back
      ? { from, items: [...items].reverse(), ahead: previous, behind: next, partial }
      : { from, items, ahead: next, behind: previous, partial };
  }
}

/**
 * Returns one page of the items whose visible error text matches. Hidden matches are passed over, to the end of the
 * list if necessary.
 */
export async function searched<T>(
  context: RequestContext,
  search: Search<T>,
  { limit, cursor }: { readonly limit: number; readonly cursor: string | undefined },
): Promise<Page<T>> {
  if (search.error === undefined) return search.find(request(limit, cursor));
  const back = cursor !== undefined && isBackCursor(cursor);
  const walk = new PageWalk(context, search, back);
  const { shown, ended, partial } = await walk.shown(limit, cursor);
  if (!ended && !partial && shown.length < limit) throw tooLong();
  const kept = shown.slice(0, limit);
  const [first, last] = [kept[0], kept.at(-1)];
  const mayBeMore = shown.length > limit || !ended;
  const ahead = last !== undefined && mayBeMore ? await walk.ahead(last) : null;
  const behind = first !== undefined && cursor !== undefined ? await walk.behind(first) : null;
  const items = kept.map(({ item }) => item);
  return back
    ? { items: items.reverse(), next: behind, previous: ahead, partial }
    : { items, next: ahead, previous: behind, partial };
}

/** Yields all items whose visible error text matches, in batches. */
export async function* eachShown<T>(
  context: RequestContext,
  search: Search<T>,
): AsyncGenerator<readonly T[]> {
  for (let next: string | null | undefined; next !== null;) {
    const page: Page<T> = await search.find(request(BATCH, next));
    if (page.partial === true) throw tooLong();
    yield page.items.filter((item) => isShown(context, search, item));
    next = page.next;
  }
}

/** Counts the items whose visible error text matches, up to `limit`. */
export async function countShown<T>(
  context: RequestContext,
  search: Search<T>,
  limit: number,
): Promise<number> {
  const end = performance.now() + LONGEST_MS;
  let count = 0;
  for await (const items of eachShown(context, search)) {
    count += items.length;
    if (count >= limit) return limit;
    if (performance.now() > end) throw tooLong();
  }
  return count;
}
