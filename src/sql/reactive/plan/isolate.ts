/** Finds the rows to blame for a statement that fails, so that the others go on. */
import { StoreError } from '../../../core/errors.js';
import { bisect, type Blame, type Choked } from '../../../core/batches/bisect.js';
import { isAnswered, isConflict, isLocked, isTimeLimit, classifyError } from '../../connection/errors.js';
import type { Suspects } from './suspects.js';

/** So many rows fail, and none works: it is not for the rows. */
const HOPELESS = 32;
/** Neighbours in a batch often have the same fault; those that are tried first are from all over it. */
const STRIDE = 8;

/** An error that most often passes by itself: one of a deadlock, a disk that is full, or of nobody knows what. */
function mayPass(error: unknown): boolean {
  const fault = classifyError('plan', error);
  return isTimeLimit(error) || (fault instanceof StoreError && fault.transient);
}

/** It concerns all of a batch, and the next try is likely to succeed. A row that ends the server's process is rare. */
const isPassing = (error: unknown): boolean => !isAnswered(error) || isConflict(error) || isLocked(error);

const mixed = (keys: readonly string[]): readonly string[] =>
  Array.from({ length: STRIDE }, (_, rest) => keys.filter((_key, at) => at % STRIDE === rest)).flat();

/** Nothing of a batch works, with an error that may pass. */
class Hopeless extends Error {}

/**
 * A statement over some keys; over none it must succeed, unless it is wrong itself. False where it got nowhere, for instance because the
 * table is being altered: that says nothing about rows.
 */
type Statement = (keys: readonly string[]) => Promise<boolean>;

/**
 * Runs a statement over a batch, and answers the rows that it chokes on. An error that may pass makes its row wait
 * (`blocked`), until it has lasted so long that it will not. Where no row works the task or the server is to blame: the
 * batch is tried again, and after a while the error says that this is of no use.
 */
export async function isolated(
  suspects: Suspects,
  task: string,
  given: readonly string[],
  statement: Statement,
): Promise<readonly Choked<string>[]> {
  // A row that waits may come from several looks at once; it is one row, and has one fault.
  const keys = [...new Set(given)];
  try {
    if (await statement(keys)) suspects.succeeded(task, keys);
    return [];
  } catch (error) {
    if (keys.length === 0 || (isPassing(error) && !suspects.failed(task, keys))) throw error;
    // Where it fails without any row as well, no row is to blame.
    await statement([]);
    return await search(suspects, task, keys, statement);
  }
}

async function search(
  suspects: Suspects,
  task: string,
  keys: readonly string[],
  statement: Statement,
): Promise<readonly Choked<string>[]> {
  let failed = 0;
  let works = false;
  const attempt = async (some: readonly string[]): Promise<void> => {
    try {
      if (!(await statement(some))) return;
      works = true;
      suspects.succeeded(task, some);
    } catch (error) {
      if (some.length === 1 && mayPass(error)) failed += 1;
      throw !works && failed >= HOPELESS ? new Hopeless('', { cause: error }) : error;
    }
  };
  try {
    const choked = await bisect(mixed(keys), attempt, blame);
    return choked.map((one) => ({ ...one, blocked: one.blocked && !suspects.failed(task, [one.item]) }));
  } catch (error) {
    if (!(error instanceof Hopeless)) throw error;
    throw hopeless(error.cause, suspects.failed(task, []));
  }
}

const hopeless = (cause: unknown, lasts: boolean): unknown =>
  lasts
    ? new StoreError(`plan: ${String(cause)}: no row can be planned.`, { cause, transient: false })
    : cause;

function blame(error: unknown): Blame {
  if (error instanceof Hopeless) return 'again';
  return mayPass(error) ? 'blocked' : 'choked';
}
