import { CircleAlert, Inbox } from 'lucide';
import type { ComponentChildren, VNode } from 'preact';
import { advice, type ApiError } from '../api.js';
import { useAfter } from '../now.js';
import { Icon } from './icon.js';

const PATIENCE_MS = 120;

/** Takes the place and the height of rows that load. Invisible for the first 120 ms, in which most responses arrive. */
export function Skeleton({ rows, height }: { readonly rows: number; readonly height: number }): VNode {
  const late = useAfter(PATIENCE_MS);
  return (
    <div class={late ? 'skeleton late' : 'skeleton'} aria-busy="true">
      <span class="hidden">Loading</span>
      {Array.from({ length: rows }, (_, i) => (
        <div key={i} style={{ height: `${height}px` }} />
      ))}
    </div>
  );
}

export function Empty({
  title,
  children,
}: {
  readonly title: string;
  readonly children: ComponentChildren;
}): VNode {
  return (
    <div class="empty">
      <Icon of={Inbox} size={28} />
      <h3>{title}</h3>
      <div>{children}</div>
    </div>
  );
}

/** What went wrong, as the server puts it, and what to do. */
export function Problem({ error, retry }: { readonly error: ApiError; readonly retry?: () => void }): VNode {
  return (
    <div class="problem" role="alert">
      <Icon of={CircleAlert} size={20} />
      <div>
        <strong>{error.message}</strong>
        <p>{advice(error)}</p>
        {retry && (
          <button
            type="button"
            class="button"
            onClick={error.status === 401 ? () => location.reload() : retry}
          >
            {error.status === 401 ? 'Load again' : 'Try again'}
          </button>
        )}
      </div>
    </div>
  );
}

/** Dims the old data until the new data arrives. */
export function Stale({
  when,
  children,
}: {
  readonly when: boolean;
  readonly children: ComponentChildren;
}): VNode {
  return (
    <div class={when ? 'stale' : ''} aria-busy={when}>
      {children}
    </div>
  );
}
