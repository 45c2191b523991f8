import type { Right } from '../contract.js';
import { Refusal } from './errors.js';
import type { DashboardSettings, Granted } from '../options.js';

/** A caller whom `authorize` admitted. */
export interface Viewer {
  readonly rights: readonly Right[];
  readonly actor: string;
  /** Whether `authorize` named the actor. */
  readonly isNamed: boolean;
}

const RIGHTS: readonly Right[] = ['view', 'payload', 'act'];

const nobody = (): Refusal =>
  new Refusal(401, 'unauthorized', 'You are not signed in, or may not see this dashboard.');

/** Unknown rights are ignored, so a misspelt one grants nothing. */
function viewerOf(granted: Exclude<Granted, Response>): Viewer {
  if (granted === null || granted === undefined || granted === false) throw nobody();
  const { rights, actor } = Array.isArray(granted)
    ? { rights: granted as readonly Right[], actor: undefined }
    : (granted as { rights: readonly Right[]; actor?: string });
  const known = RIGHTS.filter((right) => Array.isArray(rights) && rights.includes(right));
  if (known.length === 0) throw nobody();
  const isNamed = typeof actor === 'string' && actor !== '';
  return { rights: known, actor: isNamed ? actor : 'somebody', isNamed };
}

/**
 * Asks the host who the caller is. A `Response` from `authorize` is passed on. If `authorize` throws, the request is
 * refused.
 */
export async function admit(
  { authorize, readOnly }: DashboardSettings,
  request: Request,
): Promise<Viewer | Response> {
  const granted = await authorize(request);
  if (granted instanceof Response) return granted;
  const viewer = viewerOf(granted);
  return readOnly ? { ...viewer, rights: viewer.rights.filter((right) => right !== 'act') } : viewer;
}

const WORDS: Readonly<Record<Right, string>> = {
  view: 'see this',
  payload: 'see data',
  act: 'change anything',
};

export function need({ rights }: Viewer, right: Right): void {
  if (!rights.includes(right)) throw new Refusal(403, 'forbidden', `You may not ${WORDS[right]}.`);
}
