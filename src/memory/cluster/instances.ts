import type { Clock } from '../../core/clock.js';
import type {
  Cluster,
  Instance,
  InstanceDetails,
  InstanceStore,
  Leader,
  Registration,
  Rival,
} from '../../store/port.js';

interface Entry {
  registration: Registration;
  leaseUntil: number;
  dead: boolean;
}

export class MemoryInstances implements InstanceStore {
  readonly #clock: Clock;
  readonly #paused: ReadonlySet<string>;
  readonly #leader: () => Leader | undefined;
  readonly #entries = new Map<string, Entry>();

  constructor(clock: Clock, paused: ReadonlySet<string>, leader: () => Leader | undefined) {
    this.#clock = clock;
    this.#paused = paused;
    this.#leader = leader;
  }

  cluster(): Cluster {
    const now = this.#clock.now();
    const instances = [...this.#entries.values()].map(({ registration, leaseUntil, dead }) => ({
      instanceId: registration.instanceId,
      life: registration.life,
      names: registration.names,
      tasks: registration.tasks,
      plans: registration.plans ?? null,
      leftMs: leaseUntil - now,
      dead,
    }));
    const leader = this.#leader();
    return {
      now: new Date(now),
      paused: new Set(this.#paused),
      instances,
      ...(leader === undefined ? {} : { leader }),
    };
  }

  list(): Promise<Cluster> {
    return Promise.resolve(this.cluster());
  }

  describe(): Promise<{ cluster: Cluster; instances: readonly InstanceDetails[] }> {
    const cluster = this.cluster();
    const registrations = [...this.#entries.values()].map(({ registration }) => registration);
    const instances = cluster.instances.map((state, at): InstanceDetails => {
      const { host = '', pid = 0, capacity } = registrations[at] ?? {};
      return { ...state, host, pid, ...(capacity === undefined ? {} : { capacity }) };
    });
    return Promise.resolve({ cluster, instances });
  }

  register(registration: Registration, takeOver?: string): Promise<{ refusedBy?: Rival }> {
    const now = this.#clock.now();
    for (const entry of this.#entries.values()) {
      const { instanceId, life, host, pid } = entry.registration;
      if (entry.dead || instanceId !== registration.instanceId || life === registration.life) continue;
      const expired = entry.leaseUntil <= now;
      if (!expired || life !== takeOver) return Promise.resolve({ refusedBy: { life, host, pid, expired } });
      entry.dead = true;
    }
    this.#entries.set(registration.life, {
      registration,
      leaseUntil: now + registration.leaseMs,
      dead: false,
    });
    return Promise.resolve({});
  }

  renew(registration: Registration): Promise<'renewed' | 'lost'> {
    const entry = this.#entries.get(registration.life);
    if (entry === undefined || entry.dead) return Promise.resolve('lost');
    entry.registration = registration;
    entry.leaseUntil = this.#clock.now() + registration.leaseMs;
    return Promise.resolve('renewed');
  }

  deregister(instance: Instance): Promise<void> {
    this.#entries.delete(instance.life);
    return Promise.resolve();
  }

  fence(instance: Instance): Promise<{ policies: Readonly<Record<string, unknown>> } | undefined> {
    const entry = this.#entries.get(instance.life);
    if (entry === undefined || (!entry.dead && entry.leaseUntil > this.#clock.now()))
      return Promise.resolve(undefined);
    entry.dead = true;
    return Promise.resolve({ policies: entry.registration.policies });
  }

  bury(instance: Instance): Promise<void> {
    if (this.#entries.get(instance.life)?.dead === true) this.#entries.delete(instance.life);
    return Promise.resolve();
  }
}
