import { OptionError } from '../../core/errors.js';
import type { Misfit } from '../../store/documents.js';
import { misfitError } from './conclude.js';
import type { Hooks } from './hooks.js';
import { asked, type Opened } from './writes.js';

/** How many misfits are reported, and remembered as reported. */
const MOST_KNOWN = 1_000;

/**
 * Finds out when the next document is due, and reports each misfit (a document whose `sleepUntil` is not a date) once.
 */
export class DueScan<Doc> {
  readonly #opened: Opened<Doc>;
  readonly #hooks: Hooks<Doc>;
  #known: unknown[] = [];

  constructor(opened: Opened<Doc>, hooks: Hooks<Doc>) {
    this.#opened = opened;
    this.#hooks = hooks;
  }

  /** Undefined if the store has no `look`. */
  get look(): ((withinMs: number) => Promise<number | null>) | undefined {
    return this.#opened.store.look === undefined ? undefined : (withinMs) => this.#look(withinMs);
  }

  async #look(withinMs: number): Promise<number | null> {
    const { store, signal } = this.#opened;
    const known = this.#known;
    const answer = await asked('look for documents', async () => store.look?.({ withinMs, known, signal }));
    for (const misfit of answer?.misfits ?? []) await this.#report(misfit);
    return answer?.dueInMs ?? null;
  }

  async #report({ id, value }: Misfit): Promise<void> {
    if (this.#known.length >= MOST_KNOWN) return;
    this.#known = [...this.#known, id];
    await this.#hooks.error(misfitError(id, value), { where: 'sleepUntil' });
    if (this.#known.length < MOST_KNOWN) return;
    const most = `${String(MOST_KNOWN)} documents have a sleepUntil that is neither a date nor null; further ones are not reported.`;
    await this.#hooks.error(new OptionError(most), { where: 'sleepUntil' });
  }
}
