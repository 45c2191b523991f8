import type { ComponentChildren, VNode } from 'preact';
import { Link } from './link.js';

interface StepProps {
  /** Where it leads; undefined if there is no such page. */
  readonly to: string | undefined;
  readonly children: ComponentChildren;
}

/** A link to another page of a list. */
export function Step({ to, children }: StepProps): VNode {
  if (to !== undefined) {
    return (
      <Link to={to} class="button">
        {children}
      </Link>
    );
  }
  // Takes the same room, so that the other link stays below the pointer.
  return (
    <span class="button" aria-disabled="true">
      {children}
    </span>
  );
}
