import type { VNode } from 'preact';
import { duration, exactTime, relative } from '../format.js';
import { useNow } from '../now.js';

/** How long ago, or until when; the exact time is in the tooltip. */
export function Time({ at }: { readonly at: string | null | undefined }): VNode {
  const now = useNow();
  if (at === null || at === undefined) return <span class="muted">–</span>;
  return (
    <time dateTime={at} title={exactTime(at)}>
      {relative(Date.parse(at), now)}
    </time>
  );
}

export function Span({ ms }: { readonly ms: number | null | undefined }): VNode {
  if (ms === null || ms === undefined) return <span class="muted">–</span>;
  return <span title={`${Math.round(ms)} ms`}>{duration(ms)}</span>;
}
