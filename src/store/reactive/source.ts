/** Where the watched documents live. */
export interface Source {
  /** Absent: the store's own database. */
  readonly database?: string;
  readonly collection: string;
}
