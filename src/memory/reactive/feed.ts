import { StoreError } from '../../core/errors.js';
import type { Feed, FeedEvent, FeedRequest } from '../../store/reactive/reactive.js';
import type { Partition } from '../../store/reactive/partitions.js';
import type { ChangeLog } from './log.js';
import { isIn } from './partition.js';
import { textOf } from './query/values.js';

/** Reads the log of changes from a position on. A resume token is such a position. */
export class MemoryFeed implements Feed {
  readonly #log: ChangeLog;
  readonly #collections: ReadonlySet<string>;
  readonly #partition: Partition;
  readonly #unsubscribe: () => void;
  /** The next position to read. */
  #position: number;
  /** The position up to which events were handled: an event counts only when the next one is requested. */
  #taken: number;
  #wake: (() => void) | undefined;
  #closed = false;

  constructor(log: ChangeLog, { collections, token, since = [] }: FeedRequest, partition: Partition) {
    this.#log = log;
    this.#partition = partition;
    this.#collections = new Set(collections);
    const resume = typeof token === 'number' ? token : log.end;
    const points = since.filter((point): point is number => typeof point === 'number');
    this.#position = Math.min(resume, ...points.filter((point) => log.has(point)));
    this.#taken = this.#position;
    // Throws at once if the log no longer has this position.
    log.at(this.#position);
    this.#unsubscribe = log.onAppend(() => this.#wake?.());
  }

  get token(): unknown {
    return this.#taken;
  }

  async next(): Promise<FeedEvent> {
    this.#taken = this.#position;
    for (;;) {
      if (this.#closed) throw new StoreError('watch: the feed was closed.', { transient: true });
      const event = this.#read();
      if (event !== undefined) return event;
      this.#taken = this.#position;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  close(): Promise<void> {
    this.#closed = true;
    this.#unsubscribe();
    this.#wake?.();
    return Promise.resolve();
  }

  #read(): FeedEvent | undefined {
    for (
      let found = this.#log.at(this.#position);
      found !== undefined;
      found = this.#log.at(this.#position)
    ) {
      this.#position += 1;
      const { collection, id, kind, at } = found;
      if (this.#collections.has(collection) && isIn(this.#partition, id))
        return {
          kind: 'change',
          change: { collection, id, key: textOf(id), kind },
          token: this.#position,
          at,
        };
    }
    return undefined;
  }
}
