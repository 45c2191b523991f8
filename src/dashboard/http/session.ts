import { may, type RequestContext } from '../request-context.js';
import type { Action, Session, WorkKind } from '../contract.js';
import { KIND, kindsOf } from '../kinds/all.js';
import type { Kind } from '../kinds/kind.js';
import type { Mill } from '../options.js';
import { STATUSES } from './parameters.js';

/** A store given as a URL is named by the URL's scheme; these schemes differ from the name of the kind. */
const STORES: Readonly<Record<string, string>> = {
  'mongodb+srv': 'mongodb',
  postgresql: 'postgres',
  file: 'embedded',
};

const storeOf = (mill: Mill): string => {
  const { store } = mill.health();
  return STORES[store] ?? store;
};

export function sessionOf(context: RequestContext, csrf: string, version: string): Session {
  const offered = (of: (kind: Kind) => readonly Action[]): Record<WorkKind, readonly Action[]> => {
    const actions = (kind: Kind): readonly Action[] => (may(context, 'act') ? of(kind) : []);
    return { jobs: actions(KIND.jobs), tasks: actions(KIND.tasks), documents: actions(KIND.documents) };
  };
  return {
    rights: context.viewer.rights,
    readOnly: context.settings.readOnly,
    csrf,
    store: storeOf(context.mill),
    kinds: kindsOf(context.mill),
    statuses: STATUSES,
    version,
    bulk: offered(({ bulk }) => bulk),
    nameActions: offered(({ nameActions }) => nameActions),
  };
}
