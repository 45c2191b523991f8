import type { VNode } from 'preact';
import type { Action } from '../../../../src/dashboard/contract.js';
import { ACTIONS } from '../../actions.js';
import { count } from '../../format.js';
import { Icon } from '../../ui/icon.js';

/** What a bulk action affects: the selected rows, or everything that matches the filter, on this page or not. */
export type Scope = 'selected' | 'matching';

interface BulkBarProps {
  readonly actions: readonly Action[];
  readonly scope: Scope;
  readonly setScope: (scope: Scope) => void;
  readonly selected: number;
  readonly clear: () => void;
  readonly begin: (action: Action) => void;
}

/** Always visible, so that selecting the first row moves nothing. */
export function BulkBar({ actions, scope, setScope, selected, clear, begin }: BulkBarProps): VNode {
  const idle = scope === 'selected' && selected === 0;
  return (
    <div class="bulk-bar" role="group" aria-label="Bulk actions">
      <div class="segments" role="group" aria-label="Rows to act on">
        <button type="button" aria-pressed={scope === 'selected'} onClick={() => setScope('selected')}>
          Selected: {count(selected)}
        </button>
        <button type="button" aria-pressed={scope === 'matching'} onClick={() => setScope('matching')}>
          Everything that matches
        </button>
      </div>
      <div class="bulk-actions">
        {actions.map((action) => {
          const { label, icon, danger = false } = ACTIONS[action];
          return (
            <button
              key={action}
              type="button"
              class={danger ? 'button danger' : 'button'}
              disabled={idle}
              onClick={() => begin(action)}
            >
              <Icon of={icon} size={14} />
              {label} …
            </button>
          );
        })}
        <button type="button" class="button quiet" disabled={selected === 0} onClick={clear}>
          Clear
        </button>
      </div>
    </div>
  );
}
