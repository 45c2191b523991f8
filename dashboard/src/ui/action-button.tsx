import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { Action } from '../../../src/dashboard/contract.js';
import { ACTIONS, type ActionWords } from '../actions.js';
import { Dialog } from './dialog.js';
import { Icon } from './icon.js';

interface ActionButtonProps {
  readonly action: Action;
  /** What it acts on, as part of a sentence: `the job 1234`. */
  readonly what: string;
  readonly run: () => Promise<unknown>;
  readonly small?: boolean;
  /** In place of those of the action. */
  readonly words?: Partial<ActionWords>;
}

/** A button that performs an action. Dangerous actions ask for confirmation first. */
export function ActionButton({ action, what, run, small = false, words }: ActionButtonProps): VNode {
  const { label, icon, meaning, danger = false }: ActionWords = { ...ACTIONS[action], ...words };
  const [asking, ask] = useState(false);
  const [busy, setBusy] = useState(false);
  const start = async (): Promise<void> => {
    ask(false);
    setBusy(true);
    await run();
    setBusy(false);
  };
  return (
    <>
      <button
        type="button"
        class={`button ${danger ? 'danger' : ''} ${small ? 'small' : ''}`}
        title={meaning}
        aria-label={`${label} ${what}`}
        disabled={busy}
        onClick={() => (danger ? ask(true) : void start())}
      >
        <Icon of={icon} size={14} />
        {label}
      </button>
      {asking && (
        <Dialog title={`${label} ${what}?`} onClose={() => ask(false)}>
          <p>{meaning}</p>
          <footer>
            <button type="button" class="button" onClick={() => ask(false)}>
              Do nothing
            </button>
            <button type="button" class="button danger-solid" onClick={() => void start()}>
              {label}
            </button>
          </footer>
        </Dialog>
      )}
    </>
  );
}
