import type { VNode } from 'preact';

/** The same drawing as icon.svg, in the colours of the theme. */
export function Logo(): VNode {
  return (
    <svg class="logo" viewBox="0 0 32 32" width="26" height="26" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" fill="var(--accent-solid)" />
      <g fill="none" stroke="#fff" stroke-width="2.6" stroke-linecap="round">
        <path d="M6 13.5c2.5-3 5-3 7.5 0s5 3 7.5 0c1.7-2 3.4-2.7 5-2" />
        <path d="M6 20.5c2.5-3 5-3 7.5 0s5 3 7.5 0c1.7-2 3.4-2.7 5-2" opacity=".7" />
      </g>
    </svg>
  );
}
