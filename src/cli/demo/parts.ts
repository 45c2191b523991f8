import type { Store } from '../../index.js';
import { aliveIn, namer, type Crew, type CrewOptions, type Part, type Report, type Role } from './crew.js';
import { startPart } from './part.js';

interface Member {
  readonly part: Promise<Part>;
  ready: boolean;
}

/** Workers and producers inside this process, on one store: for a database that no other process can reach. */
export class DemoMembers implements Crew {
  readonly accident = 'stopped in the middle of their work';
  readonly #store: Store;
  readonly #space: string;
  readonly #options: CrewOptions;
  readonly #members = new Map<string, Member>();
  /** Stops that have not been awaited yet. */
  readonly #leaving = new Set<Promise<void>>();
  readonly #nextName = namer();

  constructor(store: Store, space: string, options: CrewOptions) {
    this.#store = store;
    this.#space = space;
    this.#options = options;
  }

  alive(role: Role): string[] {
    return aliveIn(this.#members, role);
  }

  start(role: Role): string {
    const name = this.#nextName(role);
    const tell = (report: Report): void => this.#options.report(name, report);
    const member: Member = {
      part: startPart(role, { name, store: this.#store, space: this.#space, tell }),
      ready: false,
    };
    this.#members.set(name, member);
    member.part.then(
      () => (member.ready = true),
      (error: unknown) => {
        if (this.#members.delete(name)) this.#options.died(name, String(error));
      },
    );
    return name;
  }

  /** A process cannot kill a part of itself, so the worker is stopped without time to finish. */
  strike(name: string): string {
    const left = this.#leave(name, '0s').finally(() => this.#leaving.delete(left));
    this.#leaving.add(left);
    return `${name} was stopped in the middle of its work`;
  }

  async stop(role: Role): Promise<void> {
    const names = [...this.#members.keys()].filter((name) => name.startsWith(role));
    await Promise.all([...names.map((name) => this.#leave(name, '4s')), ...this.#leaving]);
  }

  async #leave(name: string, timeout: '0s' | '4s'): Promise<void> {
    const member = this.#members.get(name);
    this.#members.delete(name);
    // A part that failed to start has nothing to stop.
    const part = await member?.part.catch(() => undefined);
    await part?.stop(timeout);
  }
}
