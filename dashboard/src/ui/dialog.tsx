import { X } from 'lucide';
import type { ComponentChildren, VNode } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { Icon } from './icon.js';

interface DialogProps {
  readonly title: string;
  readonly children: ComponentChildren;
  readonly onClose: () => void;
}

/** The browser's own modal dialog, which keeps the focus inside. Whoever had it before gets it back. */
export function Dialog({ title, children, onClose }: DialogProps): VNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useEffect(() => {
    const shown = dialog.current;
    // It is taken away and not closed, so the browser gives nothing back.
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
      // Without a word before, where the browser insists.
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
