/** The audit log of a store: who did what by hand. Entries are kept for a while, and never changed but by whoever wrote them. */

export interface NewAuditEntry {
  /** Made before the first write, so that a repeat of it is harmless. */
  readonly id: string;
  readonly actor: string;
  readonly action: string;
  readonly target: string;
  readonly outcome: string;
  /** Any JSON. */
  readonly details?: unknown;
}

export interface AuditEntry extends NewAuditEntry {
  /** By the server's clock. */
  readonly at: Date;
  readonly updatedAt: Date;
  /** Somebody asked for the end of what this entry is about. */
  readonly stopRequested: boolean;
}

export interface AuditChange {
  readonly outcome?: string;
  readonly details?: unknown;
  readonly stopRequested?: true;
}

export interface AuditPageRequest {
  readonly limit: number;
  /** Older than this one. */
  readonly after?: { readonly at: Date; readonly id: string };
}

export interface AuditStore {
  append(entry: NewAuditEntry, keepMs: number): Promise<AuditEntry>;
  /** Writes the given fields only; undefined where there is no such entry. */
  amend(id: string, change: AuditChange): Promise<AuditEntry | undefined>;
  get(id: string): Promise<AuditEntry | undefined>;
  /** The newest first. */
  list(page: AuditPageRequest): Promise<{ readonly entries: readonly AuditEntry[]; readonly more: boolean }>;
  /** Deletes entries whose time has passed. Stores whose database does that leave it out. */
  sweep?(): Promise<void>;
}
