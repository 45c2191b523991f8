import { StoreError, TidemillError, reasonOf } from '../../core/errors.js';
import { fenceOf, type DocumentJobStore, type DocumentWrite, type Fenced } from '../../store/documents.js';
import type { Ending, LockedDocument } from './locked-document.js';

/** The store of a running scheduler, and the signal that aborts its calls. */
export interface Opened<Doc> {
  readonly store: DocumentJobStore<Doc>;
  readonly signal: AbortSignal;
  /** Locks leave a mark, by which a crash is detected. */
  readonly marks: boolean;
}

/**
 * Turns the errors of a user's own store, which may throw anything, into transient store errors, so that the call is
 * retried.
 */
export async function asked<T>(what: string, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof TidemillError) throw error;
    throw new StoreError(`${what}: ${reasonOf(error)}`, { cause: error, transient: true });
  }
}

/** Makes the writes and returns their results in order. A store that returns nothing from a write has made it. */
async function all<Doc>(
  { store, signal }: Opened<Doc>,
  writes: readonly DocumentWrite[],
): Promise<boolean[]> {
  if (store.settle !== undefined && writes.length > 1) return [...(await store.settle(writes, { signal }))];
  const one = async ({ id, ...write }: DocumentWrite): Promise<boolean> => {
    const options = { ...fenceOf(write), signal };
    const answer: unknown =
      'remove' in write ? await store.remove(id, options) : await store.update(id, write.changes, options);
    return answer !== false;
  };
  return Promise.all(writes.map(one));
}

type Attempt<Doc> = (
  items: readonly { readonly locked: LockedDocument<Doc>; readonly fence: Fenced }[],
) => Promise<boolean[]>;

/** Tries each document under its likeliest precondition, then those that did not match under their next one. */
async function underAnyFence<Doc>(
  helds: readonly LockedDocument<Doc>[],
  attempt: Attempt<Doc>,
): Promise<boolean[]> {
  const answers = helds.map(() => false);
  let open = helds.map((locked, at) => ({ locked, at }));
  for (let turn = 0; open.length > 0; turn += 1) {
    const items = open.flatMap(({ locked, at }) => {
      const fence = locked.fences[turn];
      return fence === undefined ? [] : [{ locked, at, fence }];
    });
    const written = items.length === 0 ? [] : await attempt(items);
    for (const [index, { at }] of items.entries()) answers[at] = written[index] ?? false;
    open = items.filter(({ at }) => answers[at] === false);
  }
  return answers;
}

/** Writes the outcomes of runs. Returns false for documents that another process has, or that were changed. */
export async function writeEndings<Doc>(
  opened: Opened<Doc>,
  endings: readonly {
    readonly locked: LockedDocument<Doc>;
    readonly ending: Ending;
    readonly basis: Fenced;
  }[],
): Promise<boolean[]> {
  const endingOf = new Map(endings.map(({ locked, ending, basis }) => [locked, { ...ending, ...basis }]));
  return asked('record documents', () =>
    underAnyFence([...endingOf.keys()], (items) =>
      all(
        opened,
        items.map(({ locked, fence }) => ({ id: locked.key, ...fence, ...(endingOf.get(locked) as Ending) })),
      ),
    ),
  );
}

/** Moves the ends of locks to `until`. Returns false for documents that another process has. */
export async function extendLocks<Doc>(
  opened: Opened<Doc>,
  helds: readonly LockedDocument<Doc>[],
  until: Date,
): Promise<boolean[]> {
  const { store, signal, marks } = opened;
  return asked('renew locks', () =>
    underAnyFence(helds, async (items) => {
      const locks = items.map(({ locked, fence }) => ({ id: locked.key, ...fence }));
      if (store.renew !== undefined) return [...(await store.renew(locks, until, { signal, marks }))];
      return all(
        opened,
        locks.map((lock) => ({ ...lock, changes: { sleepUntil: until } })),
      );
    }),
  );
}
