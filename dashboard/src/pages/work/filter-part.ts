import type { Filter } from '../../filter.js';

/** The props of each part of the filter bar: the filter, and a function that goes to the address of a changed one. */
export interface FilterPartProps {
  readonly filter: Filter;
  readonly change: (parts: Partial<Filter>) => void;
}
