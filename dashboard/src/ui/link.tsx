import type { ComponentChildren, VNode } from 'preact';
import { go, href, isPlainClick } from '../router.js';

interface LinkProps {
  readonly to: string;
  readonly children: ComponentChildren;
  readonly class?: string;
  readonly title?: string;
  readonly current?: boolean;
  /** Whether `j` and `k` move to this link, and Enter opens it. */
  readonly opensRow?: boolean;
}

/**
 * A link within the page. It is a real link, so that it can be copied or opened in another tab, but it does not
 * reload.
 */
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
