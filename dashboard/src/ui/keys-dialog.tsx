import type { VNode } from 'preact';
import { KEYS } from '../keys.js';
import { Dialog } from './dialog.js';

export function KeysDialog({ onClose }: { readonly onClose: () => void }): VNode {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="keys">
        {KEYS.map(([keys, meaning]) => (
          <div key={keys}>
            <dt>
              {keys.split(/\s+/u).map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
