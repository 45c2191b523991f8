import { ChevronRight } from 'lucide';
import type { VNode } from 'preact';
import { Icon } from './icon.js';
import { Link } from './link.js';
import { Step } from './step.js';

/** The address of a page of a forward-only list; the same for the page and for its API request. */
export function pagePath(page: string, cursor: string | null): string {
  return cursor === null ? page : `${page}?${new URLSearchParams({ cursor }).toString()}`;
}

interface MorePagesProps {
  readonly page: string;
  readonly cursor: string | null;
  readonly next: string | null;
}

export function MorePages({ page, cursor, next }: MorePagesProps): VNode {
  if (cursor === null && next === null) return <></>;
  return (
    <nav class="pager" aria-label="Pages of the list">
      <span class="muted">{cursor !== null && <Link to={page}>First page</Link>}</span>
      <Step to={next === null ? undefined : pagePath(page, next)}>
        More <Icon of={ChevronRight} />
      </Step>
    </nav>
  );
}
