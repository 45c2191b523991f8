/** Finds the rows that make a statement fail, so that the others can go on. */
import { StoreError } from '../../../core/errors.js';
import { bisect, type Blame, type Choked } from '../../../core/batches/bisect.js';
import { isAnswered, isConflict, isLocked, isTimeLimit, classifyError } from '../../connection/errors.js';
import type { Suspects } from './suspects.js';

/** If this many rows fail and none succeeds, the rows are not to blame. */
const HOPELESS = 32;
/** Neighbours in a batch often have the same fault, so the rows that are tried first are taken from all over it. */
const STRIDE = 8;

/** An error that usually passes: a timeout, a deadlock, a full disk, an internal error. */
function mayPass(error: unknown): boolean {
  const fault = classifyError('plan', error);
  return isTimeLimit(error) || (fault instanceof StoreError && fault.transient);
}

/**
 * The error concerns the whole batch, and the next try is likely to succeed. A row that crashes the server process is
 * rare.
 */
const isPassing = (error: unknown): boolean => !isAnswered(error) || isConflict(error) || isLocked(error);

const mixed = (keys: readonly string[]): readonly string[] =>
  Array.from({ length: STRIDE }, (_, rest) => keys.filter((_key, at) => at % STRIDE === rest)).flat();

/** Thrown when nothing of a batch succeeds, with an error that may pass. */
class AllFailedError extends Error {}

/**
 * A statement over some keys. Over none it must succeed, unless the statement itself is wrong. Returns false if it got
 * nowhere, for instance because the table is being altered: that says nothing about the rows.
 */
type Statement = (keys: readonly string[]) => Promise<boolean>;

/**
 * Runs a statement over a batch, and returns the rows that it fails on. A row with an error that may pass has to wait
 * (`blocked`), until the error has lasted too long for that. If no row succeeds, the task or the server is to blame:
 * the batch is tried again, until a final error says that no row can be planned.
 */
export async function isolated(
  suspects: Suspects,
  task: string,
  given: readonly string[],
  statement: Statement,
): Promise<readonly Choked<string>[]> {
  // A blocked row may come from several passes at once; it is one row with one fault.
  const keys = [...new Set(given)];
  try {
    if (await statement(keys)) suspects.succeeded(task, keys);
    return [];
  } catch (error) {
    if (keys.length === 0 || (isPassing(error) && !suspects.failed(task, keys))) throw error;
    // If the statement fails over no rows as well, no row is to blame.
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
      throw !works && failed >= HOPELESS ? new AllFailedError('', { cause: error }) : error;
    }
  };
  try {
    const choked = await bisect(mixed(keys), attempt, blame);
    return choked.map((one) => ({ ...one, blocked: one.blocked && !suspects.failed(task, [one.item]) }));
  } catch (error) {
    if (!(error instanceof AllFailedError)) throw error;
    throw hopeless(error.cause, suspects.failed(task, []));
  }
}

const hopeless = (cause: unknown, lasts: boolean): unknown =>
  lasts
    ? new StoreError(`plan: ${String(cause)}: no row can be planned.`, { cause, transient: false })
    : cause;

function blame(error: unknown): Blame {
  if (error instanceof AllFailedError) return 'again';
  return mayPass(error) ? 'blocked' : 'choked';
}
