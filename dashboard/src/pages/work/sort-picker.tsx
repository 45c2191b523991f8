import type { VNode } from 'preact';
import type { FilterPartProps } from './filter-part.js';

const ORDERS: readonly (readonly [value: string, label: string])[] = [
  ['createdAt desc', 'Newest first'],
  ['createdAt asc', 'Oldest first'],
  ['updatedAt desc', 'Last changed first'],
  ['dueAt asc', 'Next due first'],
];

export function SortPicker({ filter, change }: FilterPartProps): VNode {
  return (
    <label class="pick">
      <span class="hidden">Order</span>
      <select
        value={`${filter.sort || 'createdAt'} ${filter.order || 'desc'}`}
        onChange={(event) => {
          const [sort = '', order = ''] = event.currentTarget.value.split(' ');
          change({ sort, order });
        }}
      >
        {ORDERS.map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}
