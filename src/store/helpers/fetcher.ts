import { Batcher, type BatcherOptions } from '../../core/batches/batcher.js';
import { LeaseLostError } from '../../core/errors.js';
import type { Fetched, FetchAllRequest, FetchRequest } from '../reactive/reactive.js';

/** Undefined: the task was not found under its token, so nothing is known about its document. */
export type Read = Fetched | undefined;

export interface FetcherOptions<Tx> extends Pick<BatcherOptions<FetchRequest<Tx>, Read>, 'isOwn'> {
  /** Throws for options that the store does not take, and for a call that would wait for itself. */
  readonly check: (request: Omit<FetchRequest<Tx>, 'lease'>) => void;
  /** Equal for equal values. */
  readonly textOf: (values: readonly unknown[]) => string;
  /** Reads requests of one task with equal options, in order; inside the transaction if there is one. */
  readonly read: (requests: readonly FetchRequest<Tx>[], transaction?: Tx) => Promise<readonly Read[]>;
}

/** Fetches documents for handlers. Fetches with the same task, claim and options share queries. For stores. */
export class Fetcher<Tx> {
  readonly #options: FetcherOptions<Tx>;
  readonly #batcher: Batcher<FetchRequest<Tx>, Read>;

  constructor(options: FetcherOptions<Tx>) {
    this.#options = options;
    this.#batcher = new Batcher({ ask: (requests) => options.read(requests), isOwn: options.isOwn });
  }

  async fetch(request: FetchRequest<Tx>): Promise<Fetched> {
    const { check, textOf, read } = this.#options;
    const { plan, lease, options, transaction } = request;
    check(request);
    const fetched =
      transaction === undefined
        ? await this.#batcher.ask(textOf([plan.task, lease.token, options]), request)
        : (await read([request], transaction))[0];
    if (fetched !== undefined) return fetched;
    throw new LeaseLostError(`This attempt no longer holds the task "${plan.task}".`);
  }

  async fetchAll({ leases, ...request }: FetchAllRequest<Tx>): Promise<readonly Read[]> {
    const { check, textOf, read } = this.#options;
    const { plan, options, transaction } = request;
    check(request);
    const requests = leases.map((lease) => ({ ...request, lease }));
    if (transaction !== undefined) return read(requests, transaction);
    const kind = textOf([plan.task, options]);
    return Promise.all(requests.map((one) => this.#batcher.ask(kind, one)));
  }
}
