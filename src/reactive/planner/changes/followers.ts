import type { Clock } from '../../../core/clock.js';
import type { FeedEvent, ReactiveStore, Term } from '../../../store/reactive/reactive.js';
import type { BlockedDocuments } from '../blocked-documents.js';
import type { InForce } from '../plans-in-force.js';
import type { Planned } from '../chores/leader-maintenance.js';
import { Follower } from './follower.js';
import type { Troubles } from '../troubles.js';

/** The planner, as its feeds see it. */
export interface FollowersHost {
  /** Plans a batch of events; resolves only when that has succeeded. */
  planEvents(database: string, events: readonly FeedEvent[]): Promise<void>;
  /** Changes were missed: has every document of the database reconciled. */
  historyLost(database: string, error: Error): Promise<void>;
  /** Another instance leads. */
  overtaken(): void;
  /** Reconciliations were requested, or a feed is open at last: has the registry read again. */
  nudge(): void;
  error(error: unknown, where: string): void;
}

export interface FollowersOptions {
  readonly host: FollowersHost;
  readonly reactive: ReactiveStore;
  readonly clock: Clock;
  readonly term: Term;
  readonly blocked: BlockedDocuments;
  readonly troubles: Troubles;
  readonly stop: AbortSignal;
}

/** The feeds of all watched databases, one each, and their resume points. */
export class Followers {
  readonly #options: FollowersOptions;
  readonly #followers = new Map<string, Follower>();
  #tokens: Record<string, unknown> = {};
  /** Databases whose resume point has moved since it was stored. */
  readonly #unsaved = new Set<string>();

  constructor(options: FollowersOptions) {
    this.#options = options;
  }

  /** Continues from the resume points of an earlier leader. */
  goOnFrom(tokens: Readonly<Record<string, unknown>>): void {
    this.#tokens = { ...tokens };
  }

  isOpen(database: string): boolean {
    return this.#followers.get(database)?.isOpen === true;
  }

  /** How long the oldest change that is not planned yet has waited, over all databases. */
  get lagMs(): number {
    return Math.max(0, ...[...this.#followers.values()].map((follower) => follower.lagMs));
  }

  /** The time of the earliest resume point. */
  get resumeAt(): number | undefined {
    const times = [...this.#followers.values()].flatMap((follower) => follower.resumeAt ?? []);
    return times.length === 0 ? undefined : Math.min(...times);
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#followers.values()].map((follower) => follower.stop()));
  }

  /**
   * Opens one feed per database. A feed whose collections change is reopened from its resume point. For new tasks it
   * goes back to before they were published, so that their first documents need not wait for a reconciliation.
   */
  async follow(next: ReadonlyMap<string, Planned>, newcomers: readonly InForce[]): Promise<void> {
    const wanted = new Map<string, Set<string>>();
    for (const { plan } of next.values()) {
      const { database = '', collection } = plan.source;
      wanted.set(database, (wanted.get(database) ?? new Set()).add(collection));
    }
    const since = pointsOf(newcomers);
    for (const [database, follower] of this.#followers) {
      if (!since.has(database) && sameSet(wanted.get(database), new Set(follower.collections))) continue;
      await follower.stop();
      this.#followers.delete(database);
    }
    const opening: Promise<void>[] = [];
    for (const [database, collections] of wanted) {
      if (this.#followers.has(database) || this.#options.stop.aborted) continue;
      await this.#requestUnknown(database, next, new Set(newcomers.map(({ plan }) => plan.task)));
      const follower = this.#make(database, [...collections], since.get(database) ?? []);
      this.#followers.set(database, follower);
      opening.push(follower.start());
    }
    await Promise.all(opening);
  }

  /**
   * Requests a reconciliation of tasks that were planned before, if the database has no resume point: it is unknown up
   * to where they were planned. Requested before the feed is open, because from then on there is a resume point again,
   * and the gap would go unnoticed.
   */
  async #requestUnknown(
    database: string,
    next: ReadonlyMap<string, Planned>,
    newcomers: ReadonlySet<string>,
  ): Promise<void> {
    // The first reconciliation of a newcomer has not begun; that of any other task may be halfway through.
    const known = [...next.values()].filter(
      ({ plan }) => (plan.source.database ?? '') === database && !newcomers.has(plan.task),
    );
    if (this.#tokens[database] !== undefined || known.length === 0) return;
    const tasks = known.map(({ plan }) => plan.task);
    await this.#options.reactive.planner.request(tasks, 'no resume point');
    this.#options.host.nudge();
  }

  #make(database: string, collections: readonly string[], since: readonly unknown[]): Follower {
    const { host, reactive, clock, term, troubles } = this.#options;
    const about = `the changes of ${database === '' ? 'the database' : database}`;
    return new Follower({
      store: reactive.planning,
      clock,
      term,
      database: database === '' ? undefined : database,
      collections,
      token: this.#tokens[database],
      since,
      plan: (events) => host.planEvents(database, events),
      reached: (token) => {
        troubles.end(about);
        return this.#reached(database, token);
      },
      historyLost: (problem) => host.historyLost(database, problem),
      opened: () => {
        troubles.end(about);
        host.nudge();
      },
      error: (problem) => {
        troubles.begin(about, problem);
        host.error(problem, 'watch');
      },
    });
  }

  async #reached(database: string, token: unknown): Promise<void> {
    // Blocked documents are recorded first: from here on no successor receives their changes again.
    await this.#options.blocked.keep();
    this.#tokens[database] = token;
    this.#unsaved.add(database);
    await this.#saveTokens();
  }

  async #saveTokens(): Promise<void> {
    const { host, reactive, term } = this.#options;
    const databases = [...this.#unsaved];
    if (databases.length === 0) return;
    const tokens = Object.fromEntries(databases.map((database) => [database, this.#tokens[database]]));
    if (!(await reactive.planner.saveTokens(term, tokens))) {
      host.overtaken();
      return;
    }
    // A resume point that has moved meanwhile is stored by the call that moved it.
    for (const database of databases)
      if (this.#tokens[database] === tokens[database]) this.#unsaved.delete(database);
  }
}

/** Groups the points in the history that new tasks start from by database. */
function pointsOf(newcomers: readonly InForce[]): ReadonlyMap<string, readonly unknown[]> {
  const points = new Map<string, unknown[]>();
  for (const { plan, published } of newcomers) {
    if (published.since === undefined) continue;
    const { database = '' } = plan.source;
    points.set(database, [...(points.get(database) ?? []), published.since]);
  }
  return points;
}

const sameSet = (a: ReadonlySet<string> | undefined, b: ReadonlySet<string>): boolean =>
  a !== undefined && a.size === b.size && [...a].every((one) => b.has(one));
