import { deferred } from '../../core/lazily.js';
import { JOB_METHODS, REPLACING_METHODS, WORK_METHODS, type Parts } from '../../store/parts.js';
import type { JobStore, Watch } from '../../store/port.js';
import type { MemoryTransaction } from '../transaction.js';
import { insert } from './insert.js';
import type { Table } from './table.js';

/** The jobs of a memory store. Enqueuing is here; managed.ts has all other transitions. */
export function memoryJobs(table: Table, parts: Parts): JobStore<MemoryTransaction> {
  const managed = parts.add(async () => (await import('./managed.js')).managedJobs(table));
  return {
    newId: () => table.newId(),
    insert: (jobs, transaction) => insert(table, jobs, transaction),
    changes: { hears: 'all', watch: (_filter, { changed }) => watchTable(table, changed) },
    cursorKey: (record) => record.id,
    async *each(filter, batch) {
      yield* (await managed()).each(filter, batch);
    },
    ...deferred(managed, [...WORK_METHODS, ...JOB_METHODS, ...REPLACING_METHODS, 'heartbeat', 'sweep']),
  };
}

function watchTable(table: Table, changed: (ids: readonly string[]) => void): Promise<Watch> {
  table.watchers.add(changed);
  const close = (): Promise<void> => {
    table.watchers.delete(changed);
    return Promise.resolve();
  };
  return Promise.resolve({ close });
}
