/** Pauses of names, and of everything. */

/** What `mill.pause` and its callers ask of a store. */
export interface PauseStore {
  /**
   * Pauses a name: `ClusterBrief.paused` lists it, and no claim takes its jobs. Running jobs continue. Wakes instances, so
   * that they hand back what they took ahead. `EVERYTHING` pauses all names, of reactive tasks as well: their briefs list
   * it, too. Pauses of single names stay as they are. Repeat: no effect.
   */
  pauseName(name: string): Promise<void>;
  /** Ends the pause of a name, or that of `EVERYTHING`, and wakes instances. Repeat: no effect. */
  resumeName(name: string): Promise<void>;
  /**
   * Returns whether a name, or everything, is paused. Repeat: safe.
   * Caller: people; document schedules, which ask about `EVERYTHING` at most once a second.
   */
  isPaused(name: string): Promise<boolean>;
  /**
   * Returns whether jobs of a name start by a claim only: the name, or everything, is paused, or the name has limits.
   * As cheap as `isPaused`. Repeat: safe.
   * Caller: the engine, for each job that is stored for a free slot of its own.
   */
  isHeldUp(name: string): Promise<boolean>;
}
