import type { VNode } from 'preact';
import { ORDERS, orderOf } from '../../filter.js';
import type { FilterPartProps } from './filter-part.js';

export function SortPicker({ filter, change }: FilterPartProps): VNode {
  return (
    <label class="pick">
      <span class="hidden">Order</span>
      <select
        value={orderOf(filter)}
        onChange={(event) => {
          const [sort = '', order = ''] = event.currentTarget.value.split(' ');
          change({ sort, order });
        }}
      >
        {ORDERS[filter.kind].map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}
