import type { ComponentChildren, VNode } from 'preact';
import { go, href, isPlainClick } from '../router.js';

interface LinkProps {
  readonly to: string;
  readonly children: ComponentChildren;
  readonly class?: string;
  readonly title?: string;
  readonly current?: boolean;
  /** What `j` and `k` move between, and Enter opens. */
  readonly opensRow?: boolean;
}

/** A link within the page: real, so that it can be copied and opened elsewhere, and without a reload. */
export function Link({ to, children, current = false, opensRow = false, ...rest }: LinkProps): VNode {
  return (
    <a
      {...rest}
      href={href(to)}
      {...(current ? { 'aria-current': 'page' as const } : {})}
      {...(opensRow ? { 'data-opens-row': '' } : {})}
      onClick={(event) => {
        if (!isPlainClick(event)) return;
        event.preventDefault();
        go(to);
      }}
    >
      {children}
    </a>
  );
}
