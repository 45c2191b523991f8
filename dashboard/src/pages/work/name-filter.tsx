import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Overview, WorkKind } from '../../../../src/dashboard/contract.js';
import { get } from '../../api.js';
import type { FilterPartProps } from './filter-part.js';

/**
 * Adds a name to the filter. The list has only the names that the overview knows; others can be put into the address.
 */
export function NameFilter({ filter, change }: FilterPartProps): VNode {
  const names = useNames(filter.kind).filter((name) => !filter.names.includes(name));
  return (
    <label class="pick">
      <span class="hidden">Name</span>
      <select
        value=""
        onChange={(event) => {
          const name = event.currentTarget.value;
          event.currentTarget.value = '';
          if (name !== '') change({ names: [...filter.names, name] });
        }}
      >
        <option value="">{filter.names.length === 0 ? 'Any name' : 'Another name'}</option>
        {names.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

function useNames(kind: WorkKind): readonly string[] {
  const [names, setNames] = useState<Overview['names']>([]);
  useEffect(() => {
    const end = new AbortController();
    // If the names cannot be read, the rest of the filter still works.
    get<Overview>('overview?range=15m', end.signal).then(
      (overview) => setNames(overview.names),
      () => undefined,
    );
    return () => end.abort();
  }, []);
  return names.filter((row) => row.kind === kind).map((row) => row.name);
}
