/**
 * The port of the audit log: who did what by hand, through the dashboard or the command line. Begin with `AuditStore`.
 * An entry is appended before its action, and amended with the outcome. port.ts explains the words of the comments.
 */

export interface NewAuditEntry {
  /** Made by the caller before the first write, so that a repeat finds the entry. */
  readonly id: string;
  /** Who did it, as the host of the dashboard names them. */
  readonly actor: string;
  readonly action: string;
  /** What it was done to. */
  readonly target: string;
  /** What came of it so far. */
  readonly outcome: string;
  /** Any JSON. */
  readonly details?: unknown;
}

export interface AuditEntry extends NewAuditEntry {
  /** When it was appended, by the server's clock. */
  readonly at: Date;
  /** When it was last amended. */
  readonly updatedAt: Date;
  /** A person asked to end the operation that this entry is about. */
  readonly stopRequested: boolean;
}

/** An absent field stays as it is. */
export interface AuditChange {
  /** The result so far, in words. Default: unchanged. */
  readonly outcome?: string;
  /** Any JSON. Default: unchanged. */
  readonly details?: unknown;
  /** Asks the operation that the entry is about to end. Default: unchanged. */
  readonly stopRequested?: true;
}

export interface AuditPageRequest {
  readonly limit: number;
  /** Only entries older than this one; ties by id. */
  readonly after?: { readonly at: Date; readonly id: string };
}

/** Entries are kept for a while, and changed by `amend` only. */
export interface AuditStore {
  /**
   * Adds an entry: none → kept for `keepMs`, counted by the server's clock, which also stamps `at` and `updatedAt`.
   * Precondition: no entry has its id. Returns the entry as it is stored; if the id is taken, the stored one,
   * unchanged.
   * Repeat: returns the first entry, with what was amended since.
   */
  append(entry: NewAuditEntry, keepMs: number): Promise<AuditEntry>;
  /**
   * Writes the given fields of an entry, and stamps `updatedAt`. Its retention does not change.
   * Returns the entry as it is then, or undefined if there is none. Repeat: safe.
   * Caller: the end of an action, an operation that reports its progress, and a person who stops one.
   */
  amend(id: string, change: AuditChange): Promise<AuditEntry | undefined>;
  /** Returns the entry, or undefined if there is none. Repeat: safe. */
  get(id: string): Promise<AuditEntry | undefined>;
  /** Returns one page of entries, the newest first, and whether there are more. Repeat: safe. */
  list(page: AuditPageRequest): Promise<{ readonly entries: readonly AuditEntry[]; readonly more: boolean }>;
  /**
   * Deletes entries whose time is over by the server's clock. Repeat: safe. Absent if the database does it by itself.
   * Caller: the cleaner, once a minute on one instance of the cluster.
   */
  sweep?(): Promise<void>;
}
