import { Repeat } from 'lucide';
import type { VNode } from 'preact';
import type { WorkItem, WorkKind } from '../../../../src/dashboard/contract.js';
import { detailPath } from '../../filter.js';
import { count } from '../../format.js';
import { KIND_NOUNS } from '../../session.js';
import { Icon } from '../../ui/icon.js';
import { Link } from '../../ui/link.js';
import { Status } from '../../ui/status.js';
import { Time } from '../../ui/time.js';
import type { Selection } from './selection.js';

interface WorkTableProps {
  readonly items: readonly WorkItem[];
  readonly kind: WorkKind;
  readonly selectable: boolean;
  readonly selection: Selection;
}

export function WorkTable({ items, kind, selectable, selection }: WorkTableProps): VNode {
  const all = items.every(({ id }) => selection.ids.has(id));
  return (
    <table class="work">
      <thead>
        <tr>
          {selectable && (
            <th scope="col" class="tick">
              <input
                type="checkbox"
                aria-label="Select all rows of this page"
                checked={all}
                onChange={() =>
                  selection.set(
                    items.map(({ id }) => id),
                    !all,
                  )
                }
              />
            </th>
          )}
          <th scope="col" class="col-status">
            Status
          </th>
          <th scope="col" class="col-title">
            {KIND_NOUNS[kind][0]}
          </th>
          <th scope="col" class="grow">
            Error or progress
          </th>
          <th scope="col" class="col-attempts num">
            Attempts
          </th>
          <th scope="col" class="col-time">
            Due
          </th>
          <th scope="col" class="col-time">
            Changed
          </th>
        </tr>
      </thead>
      <tbody>
        {items.map((item) => (
          <Row key={item.id} item={item} selectable={selectable} selection={selection} />
        ))}
      </tbody>
    </table>
  );
}

interface RowProps {
  readonly item: WorkItem;
  readonly selectable: boolean;
  readonly selection: Selection;
}

function Row({ item, selectable, selection }: RowProps): VNode {
  const { id, kind, title, name, status, attempts, dueAt, createdAt, updatedAt, recurring = false } = item;
  const selected = selection.ids.has(id);
  return (
    <tr data-row class={selected ? 'selected' : ''}>
      {selectable && (
        <td class="tick">
          <input
            type="checkbox"
            aria-label={`Select ${name} ${title}`}
            checked={selected}
            onChange={() => selection.set([id], !selected)}
          />
        </td>
      )}
      <td class="col-status">
        <Status of={status} />
      </td>
      <th scope="row" class="col-title">
        <Link to={detailPath(kind, id)} opensRow>
          <span class="name">
            {name}
            {recurring && <Icon of={Repeat} size={12} />}
          </span>
          <code>{title}</code>
        </Link>
      </th>
      <td class="grow">
        <Outcome item={item} />
      </td>
      <td class="col-attempts num" data-label="Attempts">
        {count(attempts)}
      </td>
      <td class="col-time" data-label="Due">
        <Time at={dueAt} />
      </td>
      <td class="col-time" data-label="Changed">
        <Time at={updatedAt ?? createdAt} />
      </td>
    </tr>
  );
}

function Outcome({ item: { error, progress, status, claimedBy } }: { readonly item: WorkItem }): VNode {
  const busy = status.startsWith('processing') || status === 'running';
  if (busy && typeof progress === 'number') {
    return (
      <span class="row-progress">
        <progress value={progress} max={100} aria-label="Progress" /> {Math.round(progress)} %
      </span>
    );
  }
  if (error !== undefined && status !== 'completed') {
    return (
      <span class="row-error" title={error}>
        {error}
      </span>
    );
  }
  return <span class="muted">{busy && claimedBy !== undefined ? `on ${claimedBy}` : ''}</span>;
}
