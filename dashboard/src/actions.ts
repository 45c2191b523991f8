import {
  Ban,
  Eraser,
  FastForward,
  type IconNode,
  Pause,
  Play,
  Plug,
  RotateCcw,
  ScanSearch,
  SlidersHorizontal,
  Trash2,
  Undo2,
  Unplug,
} from 'lucide';
import type { ActAnswer, Action, Session, WorkKind } from '../../src/dashboard/contract.js';
import { announce } from './announce.js';
import { post } from './api.js';
import { may } from './session.js';

export interface ActionWords {
  readonly label: string;
  readonly icon: IconNode;
  /** What will happen, so that the viewer need not guess. */
  readonly meaning: string;
  readonly danger?: boolean;
}

export const ACTIONS: Readonly<Record<Action, ActionWords>> = {
  retry: {
    label: 'Retry',
    icon: RotateCcw,
    meaning: 'The work becomes pending and due now, with a fresh sequence of attempts.',
  },
  cancel: {
    label: 'Cancel',
    icon: Ban,
    meaning:
      'A pending job is cancelled at once. A running job gets an abort signal, and is cancelled once its handler stops.',
    danger: true,
  },
  remove: {
    label: 'Remove',
    icon: Trash2,
    meaning: 'Deletes it from the store, with its history. This cannot be undone.',
    danger: true,
  },
  'run-now': {
    label: 'Run now',
    icon: FastForward,
    meaning: 'Makes it due now. Later runs do not change.',
  },
  pause: {
    label: 'Pause',
    icon: Pause,
    meaning: 'No instance starts this work any more. Running work continues.',
  },
  resume: { label: 'Resume', icon: Play, meaning: 'All instances start this work again.' },
  reconcile: {
    label: 'Reconcile',
    icon: ScanSearch,
    meaning: 'The planner checks every source document again, in the background, and plans what was missed.',
  },
  forget: {
    label: 'Forget',
    icon: Eraser,
    meaning:
      'Deletes the task with all its records, and the triggers that only it needs. For a task that left the code. This cannot be undone.',
    danger: true,
  },
  'set-limit': {
    label: 'Change',
    icon: SlidersHorizontal,
    meaning: 'Other values hold in the whole cluster, until they are reset.',
  },
  'reset-limit': {
    label: 'Reset',
    icon: Undo2,
    meaning: 'The values of the code hold again, in the whole cluster.',
    danger: true,
  },
  'open-breaker': {
    label: 'Open breaker',
    icon: Unplug,
    meaning:
      'Nothing of it starts until the pause of the breaker is over; then one start is let through. Running work continues.',
    danger: true,
  },
  'close-breaker': {
    label: 'Close breaker',
    icon: Plug,
    meaning: 'Its work starts again at once, and the failures so far are forgotten.',
  },
};

/** The same for bulk actions: the states of the items differ, and an action applies to some of them only. */
export const BULK_MEANINGS: Readonly<Partial<Record<Action, string>>> = {
  retry:
    'They become pending and due now, with a fresh sequence of attempts. Work that has not ended is left alone.',
  cancel:
    'Pending jobs are cancelled at once. Running jobs get an abort signal, and are cancelled once their handlers stop. Ended jobs are left alone.',
  remove:
    'Deletes them from the store, with their history. This cannot be undone. Running work is left alone.',
};

const BULK: readonly Action[] = ['retry', 'cancel', 'remove'];

/** The actions that the viewer may perform on many items at once. */
export function bulkActions(session: Session, kind: WorkKind): readonly Action[] {
  return may(session, 'act') ? BULK.filter((action) => session.bulk[kind].includes(action)) : [];
}

/** Sends an action to the server and announces the outcome. Returns whether it succeeded. */
export async function act(
  path: 'act' | 'names' | 'schedules' | 'limits' | 'everything',
  body: object,
): Promise<boolean> {
  try {
    const { message } = await post<ActAnswer>(path, body);
    announce(message);
    return true;
  } catch (error) {
    announce(error instanceof Error ? error.message : String(error), 'bad');
    return false;
  }
}
