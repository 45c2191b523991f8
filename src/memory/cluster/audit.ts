import type { Clock } from '../../core/clock.js';
import type {
  AuditChange,
  AuditEntry,
  AuditPageRequest,
  AuditStore,
  NewAuditEntry,
} from '../../store/audit.js';
import { copyOf } from '../jobs/records.js';

interface Row {
  entry: AuditEntry;
  readonly serial: number;
  readonly expiresAt: number;
}

export class MemoryAudit implements AuditStore {
  readonly #clock: Clock;
  readonly #rows = new Map<string, Row>();
  #serial = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  append(entry: NewAuditEntry, keepMs: number): Promise<AuditEntry> {
    const now = this.#clock.now();
    const at = new Date(now);
    const kept = this.#rows.get(entry.id) ?? {
      entry: { ...copyOf(entry), at, updatedAt: at, stopRequested: false },
      serial: (this.#serial += 1),
      expiresAt: now + keepMs,
    };
    this.#rows.set(entry.id, kept);
    return Promise.resolve(copyOf(kept.entry));
  }

  amend(id: string, change: AuditChange): Promise<AuditEntry | undefined> {
    const row = this.#rows.get(id);
    if (row === undefined) return Promise.resolve(undefined);
    row.entry = { ...row.entry, ...copyOf(change), updatedAt: new Date(this.#clock.now()) };
    return Promise.resolve(copyOf(row.entry));
  }

  get(id: string): Promise<AuditEntry | undefined> {
    return Promise.resolve(copyOf(this.#rows.get(id)?.entry));
  }

  list({ limit, after }: AuditPageRequest): Promise<{ entries: readonly AuditEntry[]; more: boolean }> {
    const start = after === undefined ? Infinity : (this.#rows.get(after.id)?.serial ?? 0);
    const older = [...this.#rows.values()]
      .filter(({ serial, entry }) =>
        after !== undefined && start === 0 ? entry.at < after.at : serial < start,
      )
      .sort((a, b) => b.serial - a.serial);
    const entries = older.slice(0, limit).map(({ entry }) => copyOf(entry));
    return Promise.resolve({ entries, more: older.length > limit });
  }

  sweep(): Promise<void> {
    const now = this.#clock.now();
    for (const [id, { expiresAt }] of this.#rows) if (expiresAt <= now) this.#rows.delete(id);
    return Promise.resolve();
  }
}
