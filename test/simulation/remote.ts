import { MemoryTransaction } from '../../src/memory/index.js';
import type { DocumentJobStore, DocumentPlace } from '../../src/store/documents.js';
import type { Partition, Partitioned, Partitioning } from '../../src/store/reactive/partitions.js';
import type { LimitStore, Store, WatchHandlers } from '../../src/store/port.js';
import type { Feed, FeedEvent, PlanStore, ReactiveStore } from '../../src/store/reactive/reactive.js';
import type { Network } from './network.js';
import type { PlannerJudge } from './planners.js';
import type { SimulatedProcess } from './process.js';
import type { Rights } from './rights.js';

/** The store as the simulation runs it: what only the server sees is watched there. */
export interface Server extends Omit<Store<MemoryTransaction>, 'documents' | 'reactive'> {
  reactive(process: SimulatedProcess): PartitionedReactive;
  readonly planners: PlannerJudge;
  readonly limits: LimitStore;
  documents(place: DocumentPlace, process: SimulatedProcess): DocumentJobStore;
}

/** Reactive tasks of a store that several leaders may plan. */
export type PartitionedReactive = ReactiveStore<MemoryTransaction> & Required<Partitioned>;

export interface RemoteOptions {
  readonly server: Server;
  readonly network: Network;
  readonly process: SimulatedProcess;
  readonly rights: Rights;
}

/** Calls that a driver answers by itself. */
const LOCAL: ReadonlySet<PropertyKey> = new Set(['newId', 'cursorKey', 'read', 'each']);

/** The store as one process sees it: every call goes through the network. */
export class RemoteStore implements Store<MemoryTransaction> {
  readonly kind = 'simulated';
  readonly clock: Store['clock'];
  readonly payload: Store['payload'];
  readonly maxPayloadBytes: number;
  readonly jobs: Server['jobs'];
  readonly instances: Server['instances'];
  readonly locks: Server['locks'];
  readonly metrics: Server['metrics'];
  readonly audit: Server['audit'];
  readonly limits: LimitStore;
  readonly reactive: PartitionedReactive;
  readonly #server: Server;
  readonly #network: Network;
  readonly #process: SimulatedProcess;
  readonly #rights: Rights;

  constructor({ server, network, process, rights }: RemoteOptions) {
    this.#server = server;
    this.#network = network;
    this.#process = process;
    this.#rights = rights;
    this.clock = process.clock;
    this.payload = server.payload;
    this.maxPayloadBytes = server.maxPayloadBytes;
    this.jobs = this.#remote('jobs', server.jobs);
    this.instances = this.#remote('instances', server.instances);
    this.locks = this.#remote('locks', server.locks);
    this.metrics = this.#remote('metrics', server.metrics);
    this.audit = this.#remote('audit', server.audit);
    this.limits = this.#remote('limits', server.limits);
    this.reactive = this.#remoteReactive(server.reactive(process));
  }

  documents(place: DocumentPlace): DocumentJobStore {
    const { clock } = this;
    const server = this.#server.documents(place, this.#process);
    const documents = this.#remote('documents', server);
    const watch: DocumentJobStore['watch'] = async (wake) => {
      const told = (): void => this.#network.tell(this.#process, wake);
      const watched = await this.#call('documents.watch', () => server.watch?.(told));
      return { direct: false, close: async () => watched?.close() };
    };
    return new Proxy(documents, {
      get: (of, property) =>
        property === 'clock'
          ? clock
          : property === 'watch'
            ? watch
            : (Reflect.get(of, property, of) as unknown),
    });
  }

  acquire(): Promise<void> {
    return Promise.resolve();
  }

  release(): Promise<void> {
    return Promise.resolve();
  }

  async watch(handlers: WatchHandlers): ReturnType<Store['watch']> {
    const tell =
      <Given extends readonly unknown[]>(callback: (...given: Given) => void) =>
      (...given: Given): void =>
        this.#network.tell(this.#process, () => callback(...given));
    const remote = {
      wake: tell(handlers.wake),
      cancel: tell(handlers.cancel),
      news: tell(handlers.news),
      freed: tell(handlers.freed),
      broken: tell(handlers.broken),
    };
    const watch = await this.#call('watch', () => this.#server.watch(remote));
    return 'close' in watch ? { close: async () => watch.close() } : watch;
  }

  async transaction<T>(work: (transaction: MemoryTransaction) => Promise<T>): Promise<T> {
    const transaction = new MemoryTransaction();
    const answer = await work(transaction);
    await this.#call('commit', async () => transaction.commit());
    return answer;
  }

  isTransaction(value: unknown): value is MemoryTransaction {
    return value instanceof MemoryTransaction;
  }

  #call<T>(what: string, work: () => Promise<T> | T): Promise<T> {
    return this.#network.call(this.#process, what, async () => work());
  }

  #remote<T extends object>(name: string, port: T): T {
    return new Proxy(port, {
      get: (of, property) => {
        const value: unknown = Reflect.get(of, property, of);
        if (typeof value !== 'function' || LOCAL.has(property)) return value;
        return (...given: unknown[]): Promise<unknown> =>
          this.#call(`${name}.${String(property)}`, () => Reflect.apply(value, of, given) as unknown);
      },
    });
  }

  #remoteReactive(reactive: PartitionedReactive): PartitionedReactive {
    return {
      useGlobals: () => undefined,
      check: (where, plan) => reactive.check(where, plan),
      prepare: (plans) =>
        this.#call('prepare', () => {
          this.#rights.check(this.#process, plans);
          return reactive.prepare(plans);
        }),
      tasks: (plans) => this.#remote('tasks', reactive.tasks(plans)),
      planner: this.#remote('planner', reactive.planner),
      forgetting: this.#remote('forgetting', reactive.forgetting),
      planning: this.#remotePlanning({ index: 0, of: 1 }, reactive.planning),
      partitioning: this.#remotePartitioning(reactive.partitioning),
    };
  }

  #remotePartitioning(partitioning: Partitioning): Partitioning {
    return {
      ...this.#remote('partitioning', partitioning),
      within: (partition) => {
        const part = partitioning.within(partition);
        return {
          planner: this.#remote('planner', part.planner),
          planning: this.#remotePlanning(partition, part.planning),
        };
      },
    };
  }

  #remotePlanning(partition: Partition, server: PlanStore): PlanStore {
    const planning = this.#remote('planning', server);
    const during = <T>(statement: () => Promise<T>): Promise<T> =>
      this.#server.planners.during(partition, this.#process, statement);
    const openFeed: PlanStore['openFeed'] = async (...given) => {
      const feed = await this.#call('openFeed', () => server.openFeed(...given));
      return new RemoteFeed(feed, this.#network, this.#process);
    };
    return {
      ...planning,
      openFeed,
      plan: (...given) => during(() => planning.plan(...given)),
      unmatch: (...given) => during(() => planning.unmatch(...given)),
      clean: (...given) => during(() => planning.clean(...given)),
      reprocess: (...given) => during(() => planning.reprocess(...given)),
    };
  }
}

/** Events arrive late, or the feed breaks: then it is read again from the last point reached. */
class RemoteFeed implements Feed {
  readonly #feed: Feed;
  readonly #network: Network;
  readonly #process: SimulatedProcess;
  #token: unknown;
  #isParked = false;

  constructor(feed: Feed, network: Network, process: SimulatedProcess) {
    this.#feed = feed;
    this.#network = network;
    this.#process = process;
    this.#token = feed.token;
  }

  get token(): unknown {
    return this.#isParked ? this.#feed.token : this.#token;
  }

  async next(): Promise<FeedEvent> {
    this.#isParked = true;
    const event = await this.#feed.next().finally(() => (this.#isParked = false));
    const arrived = await this.#network.call(this.#process, 'feed.next', () => Promise.resolve(event));
    this.#token = arrived.token;
    return arrived;
  }

  close(): Promise<void> {
    return this.#feed.close();
  }
}
