import { OptionError } from '../core/errors.js';
import { checkOneOf, show } from '../core/options.js';

/**
 * What an instance does: `work` runs handlers, `plan` may plan reactive tasks, `maintain` reclaims the work of dead
 * instances and deletes expired jobs.
 */
export type Role = 'work' | 'plan' | 'maintain';
const ROLES: readonly Role[] = ['work', 'plan', 'maintain'];

/** The roles of an instance. Default: all. */
export function rolesOf(given: readonly Role[] = ROLES): ReadonlySet<Role> {
  if (!Array.isArray(given) || given.length === 0)
    throw new OptionError(`start: roles must be a list of ${ROLES.join(', ')}; got ${show(given)}.`);
  return new Set(given.map((role: Role) => checkOneOf('start', 'roles', role, ROLES)));
}
