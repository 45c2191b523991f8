import type { ComponentChildren, VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

interface PopoverProps {
  readonly label: ComponentChildren;
  readonly children: (close: () => void) => ComponentChildren;
}

/** A button with a small form. Esc and a click elsewhere close it; Esc also returns the focus to the button. */
export function Popover({ label, children }: PopoverProps): VNode {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const close = (): void => {
    setOpen(false);
    button.current?.focus();
  };
  useEffect(() => {
    if (!open) return undefined;
    box.current?.querySelector<HTMLElement>('.popover input, .popover button')?.focus();
    const outside = ({ target }: MouseEvent): void => {
      if (target instanceof Node && box.current?.contains(target) === false) setOpen(false);
    };
    document.addEventListener('mousedown', outside);
    return () => document.removeEventListener('mousedown', outside);
  }, [open]);
  return (
    <div
      ref={box}
      class="popover-box"
      onKeyDown={(event) => {
        if (event.key !== 'Escape' || !open) return;
        event.preventDefault();
        close();
      }}
    >
      <button ref={button} type="button" class="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        {label}
      </button>
      {open && <div class="popover">{children(close)}</div>}
    </div>
  );
}
