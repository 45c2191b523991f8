import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { pause, type Clock, type Timer } from '../../core/clock.js';
import { StoppingError, TidemillError } from '../../core/errors.js';
import { keepRenewed, retryAfter } from '../../core/renewal.js';
import { FailureDetector } from './failure-detector.js';
import type { Instance, InstanceStore, Registration, Rival } from '../../store/port.js';

/** Who works under the lease. */
interface LeaseHost {
  /** What this instance runs. Called at each renewal. */
  describe(): Pick<Registration, 'names' | 'policies' | 'tasks' | 'capacity' | 'plans'>;
  /** The lease was taken over, or not renewed in time. Abort everything that runs under it. */
  lost(reason: string): void;
  /** A lease is valid again. */
  regained(): void;
  renewed(): void;
  failed(error: unknown): void;
}

export interface LeaseKeeperOptions {
  readonly store: InstanceStore;
  readonly clock: Clock;
  readonly instanceId: string;
  readonly leaseMs: number;
  readonly host: LeaseHost;
}

const taken = (instanceId: string, { host, pid }: Rival): TidemillError =>
  new TidemillError(
    'INSTANCE_ID_TAKEN',
    `instanceId "${instanceId}" belongs to a live process on ${host} (pid ${String(pid)}); ` +
      `this one is on ${hostname()} (pid ${String(process.pid)}). Give each process its own instanceId, or leave the option out.`,
  );

/**
 * Keeps this instance's lease: one small write per interval, on its own timer, independent of all other work.
 *
 * States: `held` (work may be claimed) and `lost` (no work may be claimed). held -> lost: another instance has fenced
 * this one, or no renewal succeeded for a whole lease. lost -> held: a renewal found the old lease untouched, or a new
 * life began.
 */
export class LeaseKeeper {
  readonly #options: LeaseKeeperOptions;
  #life = '';
  #held = false;
  #token = 0;
  #endsAt = -Infinity;
  #deadline: Timer | undefined;
  #renewing: Promise<void> | undefined;
  readonly #stop = new AbortController();
  /** Ends the wait for a rival's lease; renewals continue. */
  readonly #hurry = new AbortController();

  constructor(options: LeaseKeeperOptions) {
    this.#options = options;
  }

  get self(): Instance {
    return { instanceId: this.#options.instanceId, life: this.#life };
  }

  /** Checks the clock, too: after a pause of the process, responses may arrive before the timer that ends the lease. */
  get held(): boolean {
    return this.leftMs > 0;
  }

  /** Milliseconds for which the lease is valid at least. */
  get leftMs(): number {
    return this.#held ? this.#endsAt - this.#options.clock.monotonic() : 0;
  }

  /** Returns a new token. It begins with the life that minted it. */
  mint(): string {
    this.#token += 1;
    return `${this.#life}.${String(this.#token)}`;
  }

  async start(): Promise<void> {
    await this.#begin();
    const { clock, leaseMs } = this.#options;
    this.#renewing = keepRenewed({ clock, leaseMs, renew: () => this.#renew() }, this.#stop.signal);
  }

  /** Renews at once if the lease is held, to advertise what this instance runs now. */
  async announce(): Promise<void> {
    if (this.#held) await this.#renew();
  }

  /** Makes a start that waits for another process's lease fail now. */
  hurry(): void {
    this.#hurry.abort();
  }

  async stop(isEmpty: boolean): Promise<void> {
    this.#stop.abort();
    this.hurry();
    this.#deadline?.cancel();
    await this.#renewing;
    this.#held = false;
    if (isEmpty) await this.#options.store.deregister(this.self);
  }

  async #begin(): Promise<void> {
    const { store, instanceId, clock, leaseMs } = this.#options;
    this.#life = randomBytes(8).toString('hex');
    const detector = new FailureDetector(clock, leaseMs);
    for (let takeOver: string | undefined; ;) {
      const sentAt = clock.monotonic();
      const { refusedBy } = await store.register(this.#registration(), takeOver);
      if (refusedBy === undefined) {
        this.#arm(sentAt);
        this.#held = true;
        return;
      }
      if (!refusedBy.expired) throw taken(instanceId, refusedBy);
      takeOver = await this.#watch(refusedBy, detector);
    }
  }

  /**
   * An outage ends the leases of live processes, too, so a rival with the same id has as long to renew as any other
   * instance. Returns its life once it may be fenced.
   */
  async #watch({ life }: Rival, detector: FailureDetector): Promise<string | undefined> {
    const { clock, leaseMs, instanceId } = this.#options;
    detector.renewed();
    const rival = { instanceId, life, leftMs: 0, dead: false };
    detector.observe({ instances: [rival], now: new Date(clock.now()) });
    const waitMs = detector.waitMs({ life, leftMs: 0 });
    if (waitMs === 0) return life;
    await pause(clock, Math.min(waitMs, retryAfter(leaseMs)), this.#hurry.signal);
    if (this.#hurry.signal.aborted) throw new StoppingError('stop() was called before start() had finished.');
    return undefined;
  }

  #registration(): Registration {
    const { leaseMs, host } = this.#options;
    return { ...this.self, ...host.describe(), host: hostname(), pid: process.pid, leaseMs };
  }

  /** The lease counts from when its renewal was sent, so it ends here no later than in the store. */
  #arm(sentAt: number): void {
    const { clock, leaseMs } = this.#options;
    this.#deadline?.cancel();
    this.#endsAt = sentAt + leaseMs;
    this.#deadline = clock.timer(this.#endsAt - clock.monotonic(), () =>
      this.#lose('it could not be renewed in time'),
    );
  }

  #lose(reason: string): void {
    if (!this.#held) return;
    this.#held = false;
    this.#options.host.lost(reason);
  }

  /** Returns true if the lease is held afterwards. */
  async #renew(): Promise<boolean> {
    const { store, clock, host } = this.#options;
    const sentAt = clock.monotonic();
    try {
      const answer = await store.renew(this.#registration());
      if (this.#stop.signal.aborted) return true;
      if (answer === 'renewed') this.#renewed(sentAt);
      else await this.#beginAgain();
      return true;
    } catch (problem) {
      host.failed(problem);
      return false;
    }
  }

  #renewed(sentAt: number): void {
    this.#arm(sentAt);
    const wasHeld = this.#held;
    this.#held = true;
    if (!wasHeld) this.#options.host.regained();
    this.#options.host.renewed();
  }

  async #beginAgain(): Promise<void> {
    this.#lose('another instance took it over');
    await this.#begin();
    this.#options.host.regained();
  }
}
