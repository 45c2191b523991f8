import { OptionError } from '../../index.js';
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

/** Dashboards whose host has heard that `authorize` returns something else than it may. */
const told = new WeakSet<DashboardSettings>();

/** A denial by mistake looks like one on purpose, so the host hears of the first one. Values may be secret. */
function misunderstood(settings: DashboardSettings, granted: object): Refusal {
  const what = Array.isArray(granted) ? 'a list without any of these' : `an object with ${keysOf(granted)}`;
  if (!told.has(settings))
    settings.onError(
      new OptionError(
        `createDashboard: authorize must return null, a Response, a list of rights (${RIGHTS.join(', ')}), or ` +
          `{ rights, actor }; got ${what}. Access is denied.`,
      ),
    );
  told.add(settings);
  return nobody();
}

const keysOf = (granted: object): string => {
  const keys = Object.keys(granted);
  return keys.length === 0 ? 'no properties' : `the properties ${keys.join(', ')}`;
};

/** Unknown rights are ignored, so a misspelt one grants nothing. */
function viewerOf(settings: DashboardSettings, granted: Exclude<Granted, Response>): Viewer {
  if (granted === null || granted === undefined || granted === false) throw nobody();
  const { rights, actor } = Array.isArray(granted)
    ? { rights: granted as readonly Right[], actor: undefined }
    : (granted as { rights: readonly Right[]; actor?: string });
  const known = RIGHTS.filter((right) => Array.isArray(rights) && rights.includes(right));
  const isEmpty = Array.isArray(rights) && rights.length === 0;
  if (known.length === 0) throw isEmpty ? nobody() : misunderstood(settings, granted);
  const isNamed = typeof actor === 'string' && actor !== '';
  return { rights: known, actor: isNamed ? actor : 'somebody', isNamed };
}

/**
 * Asks the host who the caller is. A `Response` from `authorize` is passed on. If `authorize` throws, the request is
 * refused.
 */
export async function admit(settings: DashboardSettings, request: Request): Promise<Viewer | Response> {
  const { authorize, readOnly } = settings;
  const granted = await authorize(request);
  if (granted instanceof Response) return granted;
  const viewer = viewerOf(settings, granted);
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
