import type { ComponentChildren, VNode } from 'preact';
import { Link } from './link.js';

interface StepProps {
  /** Where it leads; undefined where there is nothing more. */
  readonly to: string | undefined;
  readonly children: ComponentChildren;
}

/** A step to another page of a list. */
export function Step({ to, children }: StepProps): VNode {
  if (to !== undefined) {
    return (
      <Link to={to} class="button">
        {children}
      </Link>
    );
  }
  // Takes the same room, so that the other step stays below the pointer.
  return (
    <span class="button" aria-disabled="true">
      {children}
    </span>
  );
}
