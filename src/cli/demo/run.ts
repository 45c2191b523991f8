import { setTimeout as sleep } from 'node:timers/promises';
import { Tidemill, type Store } from '../../index.js';
import { reasonOf } from '../../mill/tools.js';
import { clean } from '../render/text.js';
import { serveDashboard } from '../serve/serve.js';
import type { Terminal } from '../terminal.js';
import { Board } from './board.js';
import type { Crew, CrewOptions } from './crew.js';
import { sendEmail } from './jobs.js';
import { DemoMembers } from './parts.js';
import { inPlace, type Place } from './place.js';
import { Processes } from './processes.js';
import { Screen } from './screen.js';
import type { Shop } from './shop/shop.js';

const WORKERS = 3;
const PRODUCERS = 2;
const REFRESH_MS = 500;
const ACCIDENT_EVERY_MS = 12_000;
const REPLACE_AFTER_MS = 2_000;

export interface DemoOptions {
  readonly place: Place;
  readonly terminal: Terminal;
  readonly seconds: number;
  readonly port: number | undefined;
  readonly color: boolean;
}

export async function runDemo(options: DemoOptions): Promise<void> {
  const { place, terminal, color } = options;
  const end = new AbortController();
  terminal.interrupted().addEventListener('abort', () => end.abort());
  const screen = new Screen(terminal, color);
  introduce(place, screen);
  screen.wait('Opening the database …');
  await inPlace(place, (store, shop) => new Demo(options, screen, store, shop, end).run());
}

/** The first screen: what the demo shows, and what to try. */
function introduce({ title, inProcess }: Place, screen: Screen): void {
  const [end, where] = inProcess ? ['stopped', 'all in this process'] : ['killed', 'each in its own process'];
  screen.title('Tidemill demo: three kinds of work, while workers die');
  screen.text(
    `${String(PRODUCERS)} producers and ${String(WORKERS)} workers on ${title}, ${where}.`,
    `Every ${String(ACCIDENT_EVERY_MS / 1000)} s a worker is ${end} in the middle of its work, and no job is lost.`,
    'Keys: k kills a worker · p pauses or resumes send-email · q ends the demo',
  );
}

/** One run of the demo, from the first worker to the summary. */
class Demo {
  readonly #options: DemoOptions;
  readonly #screen: Screen;
  readonly #end: AbortController;
  readonly #mill: Tidemill;
  readonly #board: Board;
  readonly #crew: Crew;
  #paused = false;

  constructor(options: DemoOptions, screen: Screen, store: Store, shop: Shop, end: AbortController) {
    const { place, terminal } = options;
    this.#options = options;
    this.#screen = screen;
    this.#end = end;
    this.#mill = new Tidemill({ store, logger: false });
    // Never started here; defined only so that the dashboard lists its documents.
    this.#mill.documents({ collection: shop.digests, onDocument: () => undefined });
    this.#board = new Board(this.#mill, shop);
    const listeners: CrewOptions = {
      report: (from, report) => this.#board.take(from, report),
      died: (name, why) => {
        // Ctrl-C also ends a child that does not handle it yet.
        if (!end.signal.aborted) this.#board.tell(`${name} exited unexpectedly (${why})`);
      },
    };
    this.#crew = place.inProcess
      ? new DemoMembers(store, place.space, listeners)
      : new Processes(place, terminal.entry, listeners);
  }

  async run(): Promise<void> {
    const { terminal, port, seconds } = this.#options;
    const startedAt = performance.now();
    const limit = seconds === Infinity ? undefined : setTimeout(() => this.#end.abort(), seconds * 1000);
    const dashboard = await serveDashboard({
      mill: this.#mill,
      port,
      readOnly: false,
      onError: (error) => this.#board.tell(`dashboard: ${clean(reasonOf(error))}`),
    });
    for (let i = 0; i < WORKERS; i += 1) this.#crew.start('worker');
    for (let i = 0; i < PRODUCERS; i += 1) this.#crew.start('producer');
    const accidents = setInterval(() => this.#accident(), ACCIDENT_EVERY_MS);
    const silent = terminal.keys((key) => this.#press(key));
    try {
      while (!this.#end.signal.aborted) {
        await this.#board.read();
        const { workers, producers } = {
          workers: this.#crew.alive('worker'),
          producers: this.#crew.alive('producer'),
        };
        this.#screen.show(this.#board.picture(workers, producers, dashboard.link));
        await sleep(REFRESH_MS, undefined, { signal: this.#end.signal }).catch(() => undefined);
      }
    } finally {
      clearInterval(accidents);
      clearTimeout(limit);
      silent();
      await dashboard.close();
      await this.#finish(startedAt);
      await this.#mill.stop();
    }
  }

  #press(key: string): void {
    if (key === 'q' || key === '\u0003') this.#end.abort();
    if (key === 'k') this.#accident();
    if (key === 'p') void this.#pauseOrResume();
  }

  async #pauseOrResume(): Promise<void> {
    this.#paused = !this.#paused;
    await (this.#paused ? this.#mill.jobs.pause(sendEmail.name) : this.#mill.jobs.resume(sendEmail.name));
    this.#board.tell(`${sendEmail.name} is ${this.#paused ? 'paused on every worker' : 'resumed'}`);
  }

  /** Ends a worker while it works, and starts another one later. */
  #accident(): void {
    const workers = this.#crew.alive('worker');
    const victim = workers[Math.floor(Math.random() * workers.length)];
    if (victim === undefined || this.#end.signal.aborted) return;
    this.#board.tell(this.#crew.strike(victim));
    this.#board.struck += 1;
    setTimeout(() => {
      if (!this.#end.signal.aborted)
        this.#board.tell(`${this.#crew.start('worker')} was started as its replacement`);
    }, REPLACE_AFTER_MS).unref();
  }

  /** Stops producers first, so that stopping workers get no new work. */
  async #finish(startedAt: number): Promise<void> {
    this.#screen.text('', 'Stopping: producers first, then workers, which finish their running work …');
    await this.#crew.stop('producer');
    await this.#crew.stop('worker');
    await this.#board.read();
    const { done, failed, queued, running } = this.#board.total;
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(0);
    this.#screen.text(
      `Stopped after ${seconds} s: ${String(done)} done, ${String(failed)} failed, ${String(queued)} left in the queue.`,
    );
    if (running > 0)
      this.#screen.text(`${String(running)} still held by a killed worker, whose lease had not expired yet.`);
    if (this.#board.struck > 0)
      this.#screen.text(
        `Workers ${this.#crew.accident}: ${String(this.#board.struck)}. Jobs that others took over: ${String(this.#board.handedOn)}.`,
      );
  }
}
