import { X } from 'lucide';
import type { ComponentChildren, VNode } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { Icon } from './icon.js';

interface DialogProps {
  readonly title: string;
  readonly children: ComponentChildren;
  readonly onClose: () => void;
}

/** The browser's own modal dialog, which traps the focus. Closing it returns the focus to where it was. */
export function Dialog({ title, children, onClose }: DialogProps): VNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useEffect(() => {
    const shown = dialog.current;
    // The dialog is removed rather than closed, so the browser does not restore the focus.
    const opener = document.activeElement;
    shown?.showModal();
    return () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby={titleId}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      // The browser may close the dialog without firing `cancel` first.
      onClose={onClose}
      onClick={(event) => {
        if (event.target === dialog.current) onClose();
      }}
    >
      <div class="dialog-body">
        <header>
          <h2 id={titleId}>{title}</h2>
          <button type="button" class="icon-button" onClick={onClose} title="Close (Esc)">
            <Icon of={X} />
            <span class="hidden">Close</span>
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
