import { Pause, Play, RefreshCw } from 'lucide';
import type { VNode } from 'preact';
import { useCell } from '../cell.js';
import { relative } from '../format.js';
import { type Link, type Live, paused } from '../live.js';
import { useNow } from '../now.js';
import { Icon } from './icon.js';

const WORDS: Readonly<Record<Link, string>> = {
  loading: 'Loading',
  live: 'Live',
  paused: 'Paused',
  reconnecting: 'Reconnecting',
};

/** Shows whether the data is live and, if not, how old it is. */
export function LiveControl({ live }: { readonly live: Live<unknown> }): VNode {
  const isPaused = useCell(paused);
  return (
    <div class="live-control">
      <span class={`live-state live-${live.link}`}>
        <span class="live-dot" />
        {WORDS[live.link]}
        {(live.link === 'paused' || live.link === 'reconnecting') && <Age since={live.seenAt} />}
      </span>
      {isPaused && (
        <button type="button" class="button" onClick={live.refresh}>
          <Icon of={RefreshCw} size={14} />
          Refresh
        </button>
      )}
      <button
        type="button"
        class="button"
        title="Pause or continue (p)"
        onClick={() => (paused.value = !isPaused)}
      >
        <Icon of={isPaused ? Play : Pause} size={14} />
        {isPaused ? 'Resume' : 'Pause'}
      </button>
    </div>
  );
}

function Age({ since }: { readonly since: number }): VNode {
  return <span class="muted">as it was {relative(since, useNow())}</span>;
}
