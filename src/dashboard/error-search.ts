/**
 * Searches in error texts. The store compares with the whole text, and a viewer sees it without its secrets: what only matches
 * in a hidden part is passed over, or a search would tell what is there, letter by letter.
 */
import type { Asked } from './asked.js';
import { tooLong } from './errors.js';

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
  /** Undefined: nothing is searched for. */
  readonly error: string | undefined;
  readonly textOf: (item: T) => string | undefined;
  readonly find: (page: PageRequest) => Promise<Page<T>>;
}

/** So many pages of nothing but hidden matches are passed over at once. */
const MOST_PAGES = 20;
const BATCH = 500;
const LONGEST_MS = 5_000;

/** Whether the viewer would find the text in what is shown to them; as for the stores, case makes no difference. */
export const isShown = <T>({ redactor }: Asked, { error, textOf }: Search<T>, item: T): boolean =>
  error === undefined ||
  redactor
    .text(textOf(item) ?? '')
    .toLowerCase()
    .includes(error.toLowerCase());

const request = (limit: number, cursor: string | null | undefined): PageRequest => ({
  limit,
  ...(cursor === null || cursor === undefined ? {} : { cursor }),
});

/** One page of what the viewer sees to match. */
export async function searched<T>(
  asked: Asked,
  search: Search<T>,
  { limit, cursor }: { readonly limit: number; readonly cursor: string | undefined },
): Promise<Page<T>> {
  const first = await search.find(request(limit, cursor));
  if (search.error === undefined) return first;
  const items = first.items.filter((item) => isShown(asked, search, item));
  let page = first;
  let pages = 1;
  for (; page.next !== null && items.length < limit && pages < MOST_PAGES; pages += 1) {
    page = await search.find(request(limit - items.length, page.next));
    items.push(...page.items.filter((item) => isShown(asked, search, item)));
  }
  const { next } = page;
  const isMore = next !== null && (items.length < limit || (await hasMore(asked, search, next)));
  return {
    items,
    next: isMore ? next : null,
    previous: first.previous,
    partial: page.partial === true || (items.length < limit && next !== null),
  };
}

/** That there is a next page must not tell of a hidden match either. */
async function hasMore<T>(asked: Asked, search: Search<T>, cursor: string): Promise<boolean> {
  let next: string | null = cursor;
  for (let pages = 0; next !== null && pages < MOST_PAGES; pages += 1) {
    const page: Page<T> = await search.find(request(BATCH, next));
    if (page.items.some((item) => isShown(asked, search, item))) return true;
    next = page.next;
  }
  return next !== null;
}

/** Everything that the viewer sees to match, a batch after the other. */
export async function* eachShown<T>(asked: Asked, search: Search<T>): AsyncGenerator<readonly T[]> {
  for (let next: string | null | undefined; next !== null;) {
    const page: Page<T> = await search.find(request(BATCH, next));
    if (page.partial === true) throw tooLong();
    yield page.items.filter((item) => isShown(asked, search, item));
    next = page.next;
  }
}

/** How many the viewer sees to match, up to `limit`. */
export async function countShown<T>(asked: Asked, search: Search<T>, limit: number): Promise<number> {
  const end = performance.now() + LONGEST_MS;
  let count = 0;
  for await (const items of eachShown(asked, search)) {
    count += items.length;
    if (count >= limit) return limit;
    if (performance.now() > end) throw tooLong();
  }
  return count;
}
