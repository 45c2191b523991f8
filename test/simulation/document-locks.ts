import { idText } from '../../src/core/text/paths.js';
import type { DocumentJobStore, DocumentWrite, Fenced } from '../../src/store/documents.js';
import type { Judge } from './judge.js';
import type { SimulatedProcess } from './process.js';

interface Holder {
  readonly process: SimulatedProcess;
  readonly until: number;
}

/** Who holds which document: only its holder may write to it. A lock is a time, so this holds if clocks are right. */
export class DocumentLocks {
  readonly #judge: Judge;
  readonly #holders = new Map<string, Holder>();

  constructor(judge: Judge) {
    this.#judge = judge;
  }

  /** A document store as one process uses it. */
  watched<Doc>(store: DocumentJobStore<Doc>, process: SimulatedProcess): DocumentJobStore<Doc> {
    const lock = (id: unknown, until: Date): void =>
      void this.#holders.set(idText(id), { process, until: until.getTime() });
    const wrote = (write: DocumentWrite, answer: boolean): boolean => {
      if (answer) this.#wrote(process, write);
      return answer;
    };
    return {
      ...store,
      lockNext: async (until, call) => {
        const found = await store.lockNext(until, call);
        if (found !== null && found !== undefined) lock(found.id, until);
        return found;
      },
      lockMany: async (until, options) => {
        const found = (await store.lockMany?.(until, options)) ?? [];
        for (const { id } of found) lock(id, until);
        return found;
      },
      update: async (id, changes, options) =>
        wrote({ id, changes, ...options }, await store.update(id, changes, options)),
      remove: async (id, options) => wrote({ id, remove: true, ...options }, await store.remove(id, options)),
      settle: async (writes, call) => {
        const answers = (await store.settle?.(writes, call)) ?? [];
        for (const [at, write] of writes.entries()) wrote(write, answers[at] === true);
        return answers;
      },
      renew: async (locks, until, call) => {
        const answers = (await store.renew?.(locks, until, call)) ?? [];
        for (const [at, held] of locks.entries()) {
          if (answers[at] !== true) continue;
          this.#check(process, held);
          lock(held.id, until);
        }
        return answers;
      },
    };
  }

  #wrote(process: SimulatedProcess, write: DocumentWrite): void {
    this.#check(process, write);
    // A crash is counted in a document that continues to be held.
    if ('remove' in write || write.changes.sleepUntil !== undefined) this.#holders.delete(idText(write.id));
  }

  #check(process: SimulatedProcess, { id, ifSleepUntil }: Fenced & { readonly id: unknown }): void {
    const holder = this.#holders.get(idText(id));
    if (process.wasSkewed || holder?.process.wasSkewed === true) return;
    // The same process may have locked it again meanwhile; its earlier run is as stale as any other.
    const isSame = ifSleepUntil === undefined || ifSleepUntil?.getTime() === holder?.until;
    if (holder?.process === process && isSame) return;
    this.#judge.violated(
      `reminder ${idText(id)}: ${process.name} wrote to it while ${holder?.process.name ?? 'nobody'} held it`,
    );
  }
}
