import { Ban, FastForward, type IconNode, Pause, Play, RotateCcw, ScanSearch, Trash2 } from 'lucide';
import type { ActAnswer, Action, Session, WorkKind } from '../../src/dashboard/contract.js';
import { announce } from './announce.js';
import { post } from './api.js';
import { may } from './session.js';

interface ActionWords {
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
    meaning: 'It becomes pending and due at once, with a fresh sequence of attempts.',
  },
  cancel: {
    label: 'Cancel',
    icon: Ban,
    meaning:
      'Where it waits, it is cancelled at once. Where it runs, its handler gets a signal, and it is cancelled when that gives up.',
    danger: true,
  },
  remove: {
    label: 'Remove',
    icon: Trash2,
    meaning: 'It is deleted from the store, with its history. This cannot be undone.',
    danger: true,
  },
  'run-now': {
    label: 'Run now',
    icon: FastForward,
    meaning: 'It is due at once. Its later runs stay as they are.',
  },
  pause: {
    label: 'Pause',
    icon: Pause,
    meaning: 'Nothing of it is started any more, in the whole cluster. What runs goes on.',
  },
  resume: { label: 'Resume', icon: Play, meaning: 'It is started again, in the whole cluster.' },
  reconcile: {
    label: 'Reconcile',
    icon: ScanSearch,
    meaning: 'Every source document is looked at again, in the background. What was missed is planned.',
  },
};

/** The same for bulk actions: the states of the items differ, and an action applies to some of them only. */
export const BULK_MEANINGS: Readonly<Partial<Record<Action, string>>> = {
  retry:
    'They become pending and due at once, with a fresh sequence of attempts. What has not ended yet is left alone.',
  cancel:
    'Those that wait are cancelled at once. Those that run get a signal, and are cancelled when their handlers give up. What has ended is left alone.',
  remove:
    'They are deleted from the store, with their history. This cannot be undone. What runs is left alone.',
};

const BULK: readonly Action[] = ['retry', 'cancel', 'remove'];

/** The actions that the viewer may perform on many items at once. */
export function bulkActions(session: Session, kind: WorkKind): readonly Action[] {
  return may(session, 'act') ? BULK.filter((action) => session.bulk[kind].includes(action)) : [];
}

/** Sends an action to the server and announces the outcome. Returns whether it succeeded. */
export async function act(path: 'act' | 'names' | 'schedules', body: object): Promise<boolean> {
  try {
    const { message } = await post<ActAnswer>(path, body);
    announce(message);
    return true;
  } catch (error) {
    announce(error instanceof Error ? error.message : String(error), 'bad');
    return false;
  }
}
