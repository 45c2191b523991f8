import type { Filter } from '../../filter.js';

/** What each part of the filter bar is given: the filter, and a way to another address. */
export interface FilterPartProps {
  readonly filter: Filter;
  readonly change: (parts: Partial<Filter>) => void;
}
