import { Search } from 'lucide';
import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { WorkKind } from '../../../../src/dashboard/contract.js';
import { type Filter, isNarrowed, readFilter, writeFilter } from '../../filter.js';
import { words } from '../../format.js';
import { go } from '../../router.js';
import { KIND_WORDS, may, useSession } from '../../session.js';
import { Icon } from '../../ui/icon.js';
import { Link } from '../../ui/link.js';
import { Chips } from './chips.js';
import { FieldFilter } from './field-filter.js';
import type { FilterPartProps } from './filter-part.js';
import { NameFilter } from './name-filter.js';
import { SortPicker } from './sort-picker.js';
import { TimeFilter } from './time-filter.js';

const TYPING_MS = 350;

export function FilterBar({ filter }: { readonly filter: Filter }): VNode {
  const session = useSession();
  const change = (parts: Partial<Filter>): void =>
    go(`work?${writeFilter({ ...filter, ...parts }).toString()}`);
  return (
    <section class="filters" aria-label="Filter" role="search">
      <div class="filter-row">
        <div class="segments" role="group" aria-label="Kind of work">
          {session.kinds.map((kind) => (
            <button
              key={kind}
              type="button"
              aria-pressed={kind === filter.kind}
              onClick={() => change(only(kind))}
            >
              {KIND_WORDS[kind]}
            </button>
          ))}
        </div>
        <StatusFilter filter={filter} change={change} />
      </div>
      <div class="filter-row">
        {may(session, 'payload') && <ErrorFilter filter={filter} />}
        <NameFilter filter={filter} change={change} />
        <TimeFilter filter={filter} change={change} />
        {may(session, 'payload') && <FieldFilter key={filter.kind} filter={filter} change={change} />}
        <SortPicker filter={filter} change={change} />
      </div>
      <div class="filter-row chips-row">
        <Chips filter={filter} change={change} />
        {isNarrowed(filter) && <Link to={`work?kind=${filter.kind}`}>Clear all</Link>}
      </div>
    </section>
  );
}

/** Names and statuses of one kind do not apply to another. */
function only(kind: WorkKind): Filter {
  return readFilter(new URLSearchParams({ kind }), [kind]);
}

function StatusFilter({ filter, change }: FilterPartProps): VNode {
  const { statuses } = useSession();
  const toggle = (status: string): void => {
    const chosen = filter.statuses.includes(status)
      ? filter.statuses.filter((each) => each !== status)
      : [...filter.statuses, status];
    change({ statuses: chosen });
  };
  return (
    <div class="segments multiple" role="group" aria-label="Status">
      {statuses[filter.kind].map((status) => (
        <button
          key={status}
          type="button"
          aria-pressed={filter.statuses.includes(status)}
          onClick={() => toggle(status)}
        >
          {words(status)}
        </button>
      ))}
    </div>
  );
}

/** Searches as the viewer types, without an entry in the history for each letter. */
function ErrorFilter({ filter }: { readonly filter: Filter }): VNode {
  const [text, setText] = useState(filter.error);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => setText(filter.error), [filter.error]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const search = (error: string): void => {
    clearTimeout(timer.current);
    go(`work?${writeFilter({ ...filter, error }).toString()}`, { replace: true });
  };
  return (
    <label class="search">
      <span class="hidden">Error text</span>
      <Icon of={Search} size={15} />
      <input
        type="search"
        data-filter
        placeholder="Error contains …"
        value={text}
        onInput={(event) => {
          const typed = event.currentTarget.value;
          setText(typed);
          clearTimeout(timer.current);
          timer.current = setTimeout(() => search(typed), TYPING_MS);
        }}
        onKeyDown={(event) => {
          if (event.key === 'Enter') search(text);
        }}
      />
      <kbd>/</kbd>
    </label>
  );
}
