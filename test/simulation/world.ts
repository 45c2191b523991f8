import type { Tidemill } from '../../src/index.js';
import { memory, type MemoryStore } from '../../src/memory/index.js';
import { textOf } from '../../src/memory/reactive/query/values.js';
import { FAULTS, strikes, type Fault } from './faults.js';
import { Judge } from './judge.js';
import { KEYS, LIMITED_NAMES } from './limits.js';
import { CALM, Network } from './network.js';
import { SimulatedProcess } from './process.js';
import type { Random } from './random.js';
import { PlannerJudge } from './planners.js';
import { RemoteStore, type Server } from './remote.js';
import { Rights } from './rights.js';
import type { Scheduler } from './scheduler.js';
import { watchedServer } from './server.js';
import { EVERYTHING, LEASE_MS, MOST_PARTITIONS, WATCHED, Workload, type Deployment } from './workload.js';

export interface WorldOptions {
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly seed: number;
  readonly without: readonly Fault[];
}

interface Member {
  readonly process: SimulatedProcess;
  readonly mill: Tidemill<RemoteStore>;
  /** What it is set to. */
  readonly partitions: number;
  isStarted: boolean;
  isStopping: boolean;
}

const LONGEST_FAULT_MS = 9_000;
const LONGEST_RESTART_MS = 6_000;
/** After the last fault, documents are written again when leaders should have been found. */
const LAST_WRITES_MS = 2 * LEASE_MS;
/** A deployment with another number of partitions replaces each process within this time. */
const LONGEST_ROLLOUT_MS = 4_000;

/** A database, the processes that work on it, and everything that happens to them. */
export class World {
  readonly judge: Judge;
  readonly store: MemoryStore;
  readonly workload: Workload;
  /** Jobs whose `enqueue` reported that they are stored. */
  readonly accepted = new Set<string>();
  readonly reminders = new Set<string>();
  readonly #scheduler: Scheduler;
  readonly #random: Random;
  readonly #faults: readonly Fault[];
  readonly #network: Network;
  readonly #rights: Rights;
  readonly #server: Server;
  readonly #processes = new Map<string, SimulatedProcess>();
  readonly #poisoned = new Set<string>();
  #members: Member[] = [];
  #isHealed = false;
  /** The processes' clocks differ from the start. */
  readonly #isSkewed: boolean;
  #serial = 0;
  /** The highest id of each collection that tasks watch. */
  readonly #ids = new Map(WATCHED);
  /** The newest version that was deployed. */
  #version = EVERYTHING.version;
  /** Deployments with another number of partitions come while it runs. */
  readonly #isRedivided: boolean;
  /** Changes are planned in several partitions, at times. */
  readonly #isDivided: boolean;
  /** All documents were written again after the last fault. */
  #isWritten = false;
  /** What the next deployments are set to. */
  #partitions = 1;

  constructor({ scheduler, random, seed, without }: WorldOptions) {
    this.#scheduler = scheduler;
    this.#random = random;
    this.#faults = FAULTS.filter((fault) => !without.includes(fault));
    this.#isSkewed = this.#faults.includes('clock') && random.chance(0.5);
    // By the seed itself: the course of all others does not depend on it.
    this.#isDivided = this.#faults.includes('partitions') && seed % 3 === 0;
    this.#isRedivided = this.#isDivided && seed % 2 === 0;
    if (this.#isDivided) this.#partitions = random.between(this.#isRedivided ? 1 : 2, MOST_PARTITIONS);
    this.judge = new Judge(scheduler, LEASE_MS);
    this.#network = new Network(scheduler, random);
    this.#rights = new Rights(scheduler);
    this.store = memory({
      clock: {
        now: () => Math.floor(scheduler.now),
        monotonic: () => scheduler.now,
        timer: (delayMs, callback) => ({ cancel: scheduler.after(delayMs, callback) }),
      },
    });
    this.workload = new Workload(this.store, this.judge, random);
    this.#server = watchedServer({
      store: this.store,
      judge: this.judge,
      planners: new PlannerJudge(this.store, this.judge),
      isLate: () => this.#network.isLate,
      processOf: (instanceId) => this.#processes.get(instanceId) as SimulatedProcess,
      poisoned: this.#poisoned,
    });
  }

  /** Work comes, and faults happen, for `forMs`. */
  begin(forMs: number): void {
    for (const [collection, size] of WATCHED) for (let id = 1; id <= size; id += 1) this.#put(collection, id);
    const count = this.#random.between(2, 4);
    for (let at = 0; at < count; at += 1) this.#launch(at === 0 ? this.#everything() : this.#deployment());
    const until = this.#scheduler.now + forMs;
    this.#repeat(until, 30, 850, () => this.#produce());
    this.#repeat(until, 300, 4_000, () => this.#strike());
    if (this.#isRedivided) this.#repeat(until, 1_000, 6_000, () => this.#redivide());
  }

  /** No fault happens from here on, and processes that are gone are replaced. */
  heal(): void {
    this.#isHealed = true;
    this.workload.isRough = false;
    this.#network.weather = CALM;
    this.#network.downUntil = -Infinity;
    this.judge.outagesOver();
    this.#network.choresSlowUntil = -Infinity;
    this.#rights.restore();
    for (const { process } of this.#members) {
      process.cutUntil = Math.min(process.cutUntil, this.#scheduler.now);
      process.skewMs = 0;
      process.wake();
    }
    this.#launch(this.#everything());
    if (this.#isDivided) this.#scheduler.after(LAST_WRITES_MS, () => this.#writeAll());
  }

  /** Everything that was accepted has ended. */
  get isDone(): boolean {
    return this.#isWritten === this.#isDivided && this.unfinished().length === 0;
  }

  /** Each partition is planned at the end: a change in each is handled. */
  #writeAll(): void {
    for (const [collection, size] of this.#ids)
      for (let id = 1; id <= size; id += 1) this.#put(collection, id);
    this.#isWritten = true;
  }

  /** What has not ended, in words. */
  unfinished(): readonly string[] {
    const { handled, reminded } = this.workload;
    const left: string[] = [];
    for (const id of this.accepted) {
      if (this.#poisoned.has(id)) continue;
      const item = this.judge.items.get(id);
      if (item === undefined) left.push(`job ${id} is not stored`);
      else if (item.status !== 'completed' && !(item.name === 'single' && item.status === 'failed'))
        left.push(`job ${item.name} ${id} is ${item.status}`);
    }
    const { table, planner } = this.store.reactive.opened;
    for (const { partition, plans } of planner.partitions)
      for (const { plan, state } of plans)
        if (state.handlerVersion < plan.evolution.handlerVersion)
          left.push(`partition ${String(partition.index)} of ${plan.task} is not reprocessed`);
    for (const { plan } of planner.partitions[0]?.plans ?? []) {
      const { task, source } = plan;
      for (const { _id: id, n } of this.store.collection<{ n: number }>(source.collection).all()) {
        const key = `${task}/${textOf(id)}`;
        const values = handled.get(key);
        if (this.#poisoned.has(key) || values?.has(n) === true || table.look(plan, id).outcome !== 'matches')
          continue;
        left.push(
          `${key} has handled ${[...(values ?? [])].join()}, and not ${String(n)}; its task is ${JSON.stringify(table.row(plan, id))}`,
        );
      }
    }
    for (const id of this.reminders) {
      const sleepUntil = this.store.collection('reminders').get(id)?.['sleepUntil'] ?? null;
      if (!reminded.has(id) || sleepUntil !== null)
        left.push(`reminder ${id} waits for ${JSON.stringify(sleepUntil)}`);
    }
    return left;
  }

  #repeat(until: number, leastMs: number, mostMs: number, act: () => void): void {
    this.#scheduler.after(this.#random.between(leastMs, mostMs), () => {
      if (this.#scheduler.now >= until) return;
      act();
      this.#repeat(until, leastMs, mostMs, act);
    });
  }

  #deployment(): Deployment {
    const tasks = EVERYTHING.tasks.filter(() => this.#random.chance(0.8));
    if (this.#faults.includes('version') && this.#random.chance(0.15)) this.#version += 1;
    const least = this.#faults.includes('filter') && this.#random.chance(0.2) ? 5 : 0;
    const isLower = this.#faults.includes('limits') && this.#random.chance(0.2);
    const most = isLower ? 1 : EVERYTHING.most;
    return { tasks, least, version: this.#version, most, partitions: this.#partitions };
  }

  #everything(): Deployment {
    return { ...EVERYTHING, version: this.#version, partitions: this.#partitions };
  }

  #launch(deployment: Deployment): void {
    const process = new SimulatedProcess(`p${String((this.#serial += 1))}`, this.#scheduler);
    if (!this.#isHealed && this.#isSkewed) process.skewMs = this.#random.between(-300, 300);
    this.#processes.set(process.name, process);
    const remote = new RemoteStore({
      server: this.#server,
      network: this.#network,
      process,
      rights: this.#rights,
    });
    const member = {
      process,
      mill: this.workload.mill(process, remote, deployment),
      partitions: deployment.partitions,
      isStarted: false,
      isStopping: false,
    };
    this.#members.push(member);
    this.#denyForeign(process, deployment);
    process.deliver(() => {
      member.mill.start().then(
        () => (member.isStarted = true),
        // Like a process whose start fails: it exits, and is started again.
        () => this.#end(member),
      );
    });
  }

  /** Some services have no right to the collections of others. */
  #denyForeign(process: SimulatedProcess, { tasks }: Deployment): void {
    if (this.#isHealed || !this.#faults.includes('prepare')) return;
    for (const task of EVERYTHING.tasks)
      if (!tasks.includes(task) && this.#random.chance(0.3)) this.#rights.deny(task, Infinity, process);
  }

  /** It is gone, and another one replaces it. */
  #end(member: Member): void {
    member.process.kill();
    this.#members = this.#members.filter((one) => one !== member);
    const deployment = this.#isHealed ? this.#everything() : this.#deployment();
    this.#scheduler.after(this.#random.between(0, LONGEST_RESTART_MS), () => this.#launch(deployment));
  }

  /** Each process is replaced by one that is set to another number of partitions. */
  #redivide(): void {
    this.#partitions = (this.#partitions % MOST_PARTITIONS) + this.#random.between(1, MOST_PARTITIONS - 1);
    if (this.#partitions > MOST_PARTITIONS) this.#partitions -= MOST_PARTITIONS;
    for (const member of this.#members)
      this.#scheduler.after(this.#random.between(0, LONGEST_ROLLOUT_MS), () => this.#replace(member));
  }

  #replace(member: Member): void {
    if (member.partitions === this.#partitions || member.process.isDead) return;
    if (member.isStarted) this.#stop(member);
    else this.#end(member);
  }

  #produce(): void {
    const kind = this.#random.between(0, 10);
    if (kind < 6) this.#enqueue();
    else if (kind < 9) this.#write();
    else if (kind < 10) this.#remind();
    else this.#enqueueLimited();
  }

  /** Some recur for a while. */
  #remind(): void {
    const at = this.#scheduler.now + this.#random.between(-1_000, 4_000);
    const recurs = this.#random.chance(0.3)
      ? { interval: '@every 1s', repeatUntil: new Date(at + this.#random.between(1_000, 4_000)) }
      : {};
    const reminder = this.store.collection('reminders').insert({ sleepUntil: new Date(at), ...recurs });
    this.reminders.add(String(reminder._id));
  }

  #producer(): Member | undefined {
    return this.#random.pick(this.#members.filter(({ isStarted, isStopping }) => isStarted && !isStopping));
  }

  #enqueue(): void {
    const member = this.#producer();
    if (member === undefined) return;
    const name = this.#random.pick(['step', 'step', 'step', 'only', 'transfer', 'single']) ?? 'step';
    const delay = this.#random.chance(0.3) ? this.#random.between(0, 3_000) : 0;
    const unique = name === 'only' ? { uniqueKey: `key-${String(this.#random.between(1, 2))}` } : {};
    member.process.deliver(() => {
      member.mill.enqueue(name, {}, { delay, ...unique }).then(
        ({ id }) => void this.accepted.add(id),
        () => this.judge.count('enqueue refused'),
      );
    });
  }

  /** Several jobs of a limited name at once, so that they have to wait. */
  #enqueueLimited(): void {
    const member = this.#producer();
    const name = this.#random.pick(LIMITED_NAMES) ?? '';
    const items = Array.from({ length: this.#random.between(2, 5) }, () => ({
      name,
      data: { key: this.#random.pick(KEYS) },
      delay: this.#random.chance(0.2) ? this.#random.between(0, 1_000) : 0,
    }));
    member?.process.deliver(() => {
      member.mill.enqueueMany(items).then(
        (jobs) => {
          for (const { id } of jobs) this.accepted.add(id);
        },
        () => this.judge.count('enqueue refused'),
      );
    });
  }

  /** Writes to a collection that tasks watch. */
  #write(): void {
    const collection = this.#random.chance(0.4) ? 'others' : 'things';
    const highest = this.#ids.get(collection) ?? 0;
    const known = this.#random.between(0, highest);
    if (known === 0) {
      this.#ids.set(collection, highest + 1);
      this.#put(collection, highest + 1);
    } else if (this.#random.chance(0.1)) this.store.collection(collection).delete(known);
    else this.#put(collection, known);
  }

  /** Creates or changes a document. */
  #put(collection: string, id: number): void {
    const documents = this.store.collection(collection);
    const n = this.#random.between(0, 20);
    if (!documents.update(id, { n })) documents.insert({ _id: id, n });
  }

  #strike(): void {
    const fault = this.#random.pick(this.#faults.filter(strikes));
    if (fault === undefined) return;
    this.judge.count(`fault ${fault}`);
    this.#scheduler.trace.add(`${String(this.#scheduler.now)} FAULT ${fault}`);
    const member = this.#random.pick(this.#members);
    const forMs = this.#random.between(100, LONGEST_FAULT_MS);
    if (fault === 'outage') this.#outage(forMs);
    else if (fault === 'weather') this.#changeWeather();
    else if (fault === 'chores') this.#network.choresSlowUntil = this.#scheduler.now + forMs;
    else if (fault === 'prepare') this.#deny(forMs);
    else if (fault === 'history') this.store.reactive.log.forget(this.store.reactive.log.end);
    else if (member !== undefined) this.#strikeOne(fault, member, forMs);
  }

  #strikeOne(fault: Fault, member: Member, forMs: number): void {
    const { process } = member;
    if (fault === 'crash') this.#end(member);
    else if (fault === 'deploy') this.#stop(member);
    else if (fault === 'cut') process.cutUntil = this.#scheduler.now + forMs;
    else if (fault === 'pause') {
      process.pause();
      this.#scheduler.after(forMs, () => process.wake());
    } else if (fault === 'clock') {
      process.skewMs = this.#random.between(-20_000, 20_000);
      this.#scheduler.after(forMs, () => (process.skewMs = 0));
    } else if (fault === 'poison') this.#poison();
    else if (member.isStarted)
      process.deliver(() => void member.mill.tasks.reconcile().catch(() => undefined));
  }

  /** A task cannot be prepared, by one process or by any; often another process has to lead just then. */
  #deny(forMs: number): void {
    const task = this.#random.pick(EVERYTHING.tasks) ?? '';
    const denied = this.#random.chance(0.5) ? this.#random.pick(this.#members) : undefined;
    this.#rights.deny(task, LEASE_MS + forMs, denied?.process);
    const { partitions } = this.store.reactive.opened.planner;
    const led = partitions.length > 1 ? this.#random.pick(partitions) : partitions[0];
    const leader = this.#members.find(
      ({ process }) => process.name === led?.leader?.instanceId && process !== denied?.process,
    );
    if (leader === undefined) return;
    if (this.#random.chance(0.5)) this.#stop(leader);
    else this.#end(leader);
  }

  /** The database refuses the outcomes of one job or task, for good: nothing else may wait for it. */
  #poison(): void {
    const live = [...this.judge.items].filter(
      ([id, { name, status }]) =>
        id.includes('/') ||
        // One of a limited name would be held, and count, for good.
        (this.accepted.has(id) && status !== 'completed' && !LIMITED_NAMES.includes(name)),
    );
    const id = this.#random.pick(live)?.[0];
    if (id !== undefined) this.#poisoned.add(id);
  }

  /** The store is down for all processes. */
  #outage(forMs: number): void {
    const { now } = this.#scheduler;
    this.#network.downUntil = now + forMs;
    this.judge.outage(now, now + forMs);
  }

  #changeWeather(): void {
    const bad = this.#random.pick([0, 0.02, 0.05, 0.15]) ?? 0;
    const part = (): number => bad * this.#random.next();
    this.#network.weather = { dropped: part(), unanswered: part(), late: part(), slow: 2 * part() };
  }

  #stop(member: Member): void {
    if (!member.isStarted || member.isStopping) return;
    member.isStopping = true;
    member.process.deliver(() => {
      const over = (): void => this.#end(member);
      member.mill.stop({ timeout: 500 }).then(over, over);
    });
  }
}
