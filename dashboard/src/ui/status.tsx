import {
  Ban,
  CircleAlert,
  CircleCheck,
  CircleDot,
  CirclePause,
  CircleSlash,
  Clock,
  type IconNode,
  LoaderCircle,
  RefreshCw,
  Undo2,
} from 'lucide';
import type { VNode } from 'preact';
import { words } from '../format.js';
import { Icon } from './icon.js';

type Tone = 'good' | 'bad' | 'busy' | 'wait' | 'quiet';

/** Each status has a word, an icon and a colour, so that it can be recognised without any one of them. */
const LOOKS: Readonly<Record<string, readonly [Tone, IconNode]>> = {
  pending: ['wait', Clock],
  scheduled: ['wait', Clock],
  waiting: ['wait', Clock],
  due: ['wait', CircleDot],
  retrying: ['wait', RefreshCw],
  processing: ['busy', LoaderCircle],
  running: ['busy', LoaderCircle],
  locked: ['busy', LoaderCircle],
  processing_dirty: ['busy', RefreshCw],
  completed: ['good', CircleCheck],
  done: ['good', CircleCheck],
  failed: ['bad', CircleAlert],
  crashed: ['bad', CircleAlert],
  cancelled: ['quiet', Ban],
  skipped: ['quiet', CircleSlash],
  deferred: ['wait', Clock],
  released: ['quiet', Undo2],
  paused: ['quiet', CirclePause],
  parked: ['quiet', CirclePause],
  breaker_closed: ['good', CircleCheck],
  breaker_open: ['bad', CircleAlert],
  breaker_trial: ['wait', RefreshCw],
};

const look = (status: string): readonly [Tone, IconNode] => LOOKS[status] ?? ['quiet', CircleDot];

export function Status({ of }: { readonly of: string }): VNode {
  const [tone, icon] = look(of);
  return (
    <span class={`status tone-${tone}`}>
      <Icon of={icon} size={14} />
      {words(of)}
    </span>
  );
}

export function iconOf(status: string): IconNode {
  return look(status)[1];
}

export function toneOf(status: string): Tone {
  return look(status)[0];
}
