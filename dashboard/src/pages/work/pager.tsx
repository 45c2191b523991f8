import { ChevronLeft, ChevronRight } from 'lucide';
import type { VNode } from 'preact';
import type { WorkPage } from '../../../../src/dashboard/contract.js';
import { type Filter, writeFilter } from '../../filter.js';
import { many } from '../../format.js';
import { Icon } from '../../ui/icon.js';
import { Step } from '../../ui/step.js';

/** Pages by cursor: with page numbers, every new or removed row would shift the pages. */
export function Pager({ filter, page }: { readonly filter: Filter; readonly page: WorkPage }): VNode {
  const to = (cursor: string): string => {
    const query = writeFilter(filter);
    query.set('cursor', cursor);
    return `work?${query.toString()}`;
  };
  return (
    <nav class="pager" aria-label="Pages of the list">
      <span class="muted">
        {many(page.items.length, 'row')}
        {page.partial && '; the search reached its time limit, there may be more'}
      </span>
      <Step to={page.previous === null ? undefined : to(page.previous)}>
        <Icon of={ChevronLeft} /> Previous
      </Step>
      <Step to={page.next === null ? undefined : to(page.next)}>
        Next <Icon of={ChevronRight} />
      </Step>
    </nav>
  );
}
