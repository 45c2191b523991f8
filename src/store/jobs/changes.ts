/** Which changes a watcher asks for. A store may tell of others, too. */
interface ChangeFilter {
  readonly ids?: readonly string[];
  readonly name?: readonly string[];
}

/** Called by the store for jobs that have changed on any instance. */
export interface ChangeHandlers {
  /**
   * These jobs may have changed, or are gone; the caller reads them. Without ids, any job may have. Jobs that do not match
   * the filter may be among them.
   */
  readonly changed: (ids?: readonly string[]) => void;
  /** The channel broke, maybe before `watch` resolved; it is dead. The caller reads everything, and opens another. */
  readonly broken: (error: unknown) => void;
}

/**
 * For a store that knows of a watcher: jobs that would be deleted at their end stay until the next sweep, so that the
 * watcher can read their last state.
 */
export const keptForWatchers = <S extends { readonly remove?: boolean }>(
  settlements: readonly S[],
): readonly S[] => settlements.map(({ remove, ...kept }) => kept as S);

/** How a store tells that jobs change. It shortens waits: whoever watches also reads now and then. */
export interface ChangeStore {
  /**
   * `all`: every change is told, and none is lost, so that watchers need not read now and then. `most`: changes inside
   * callers' transactions, or by other programs, may be missed.
   */
  readonly hears: 'all' | 'most';
  /**
   * Opens a channel. Resolves when every change from now on is told. Costs writers nothing while no channel is open.
   * Returns the channel, or `unavailable` with the reason. Repeat: each call opens a channel of its own.
   * Caller: `jobs.watch()`.
   */
  watch(
    filter: ChangeFilter,
    handlers: ChangeHandlers,
  ): Promise<{ close(): Promise<void> } | { readonly unavailable: string }>;
}
