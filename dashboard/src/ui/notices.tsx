import { CircleAlert, CircleCheck, X } from 'lucide';
import type { VNode } from 'preact';
import { dismiss, notices } from '../announce.js';
import { useCell } from '../cell.js';
import { Icon } from './icon.js';

/** A live region that is always present: one that appears together with its text is not read out. */
export function Notices(): VNode {
  const shown = useCell(notices);
  return (
    <div class="notices" role="status" aria-live="polite">
      {shown.map(({ id, tone, text }) => (
        <div key={id} class={`notice tone-${tone}`}>
          <Icon of={tone === 'good' ? CircleCheck : CircleAlert} />
          <span>{text}</span>
          <button type="button" class="icon-button" title="Dismiss" onClick={() => dismiss(id)}>
            <Icon of={X} size={14} />
            <span class="hidden">Dismiss</span>
          </button>
        </div>
      ))}
    </div>
  );
}
