import type { IconNode } from 'lucide';
import { h, type VNode } from 'preact';

/** Icons stand beside words, so screen readers skip them. */
export function Icon({ of, size = 16 }: { readonly of: IconNode; readonly size?: number }): VNode {
  return (
    <svg
      class="icon"
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      stroke-width="2"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
      focusable="false"
    >
      {of.map(([tag, attributes]) => h(tag, attributes))}
    </svg>
  );
}
