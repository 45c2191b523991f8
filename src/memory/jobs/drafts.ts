import type { NewJob } from '../../store/port.js';
import type { Row } from './records.js';

/** Jobs that an open transaction has inserted so far, found by id and by unique key: it may insert many thousands. */
export class Drafts {
  readonly #ids = new Map<string, Row>();
  readonly #keys = new Map<string, Row>();

  /** Returns the draft that has the id of a new job, or its name and unique key. */
  rival({ id, name, uniqueKey }: NewJob): Row | undefined {
    const same = id === undefined ? undefined : this.#ids.get(id);
    return same ?? this.withKey(name, uniqueKey);
  }

  /** Returns the draft that has a unique key, or will have it as the successor of another job. */
  withKey(name: string, uniqueKey: string | undefined): Row | undefined {
    return uniqueKey === undefined ? undefined : this.#keys.get(keyText(name, uniqueKey));
  }

  add(row: Row): void {
    this.#ids.set(row.id, row);
    const key = row.successorKey ?? row.uniqueKey;
    if (key !== undefined) this.#keys.set(keyText(row.name, key), row);
  }
}

const keyText = (name: string, uniqueKey: string): string => JSON.stringify([name, uniqueKey]);
