import type { Job, Tidemill } from '../../index.js';
import { bar } from '../render/progress.js';
import { relative } from '../render/time.js';
import type { Report } from './crew.js';
import {
  buildReport,
  chargeCard,
  JOB_NAMES,
  SEND_DIGEST,
  sendEmail,
  SHIP_ORDER,
  syncAccount,
  takePulse,
} from './jobs.js';
import type { Picture, Row } from './screen.js';
import { DIGESTS, type Shop, type ShopCounts } from './shop/shop.js';

/** The rate is averaged over this window. */
const WINDOW_MS = 5_000;
const NAMES: readonly string[] = [...JOB_NAMES, SHIP_ORDER, SEND_DIGEST];

type Counts = Readonly<Record<string, number>>;
type Numbers = Pick<Row, 'queued' | 'running' | 'done' | 'failed'>;
const NONE: Numbers = { queued: 0, running: 0, done: 0, failed: 0 };

/** What the demo shows: counts from the store, the rest from the reports of workers and producers. */
export class Board {
  readonly #mill: Tidemill;
  readonly #shop: Shop;
  readonly #reports = { repeat: 0, retry: 0, pulse: 0, recovered: 0, handedBack: 0 };
  readonly #news: string[] = [];
  /** Work done by name at recent moments, oldest first. */
  readonly #marks: { at: number; done: Counts }[] = [];
  #rows: readonly Row[] = NAMES.map((name) => ({
    name,
    kind: kindOf(name),
    ...NONE,
    perSecond: 0,
    note: '',
  }));
  /** How many workers were killed or stopped by an accident. */
  struck = 0;

  constructor(mill: Tidemill, shop: Shop) {
    this.#mill = mill;
    this.#shop = shop;
  }

  /** Jobs of such workers that others took over. */
  get handedOn(): number {
    return this.#reports.recovered + this.#reports.handedBack;
  }

  tell(text: string): void {
    this.#news.push(`${new Date().toTimeString().slice(0, 8)}  ${text}`);
  }

  take(from: string, report: Report): void {
    if (report.kind === 'ready') return;
    this.#reports[report.kind] += report.count;
    if (report.kind === 'recovered')
      this.tell(`${from} found an expired lease and took over ${pieces(report.count)} of the killed worker`);
    if (report.kind === 'handedBack') this.tell(`${from} released ${pieces(report.count)} for other workers`);
  }

  async read(): Promise<void> {
    const [numbers, notes] = await Promise.all([this.#numbers(), this.#notes()]);
    const rates = this.#rates(Object.fromEntries(NAMES.map((name) => [name, numbers[name]?.done ?? 0])));
    this.#rows = NAMES.map((name) => ({
      name,
      kind: kindOf(name),
      ...(numbers[name] ?? NONE),
      perSecond: rates[name] ?? 0,
      note: notes[name] ?? '',
    }));
  }

  get total(): Row {
    const sum = (field: keyof Numbers | 'perSecond'): number =>
      this.#rows.reduce((all, row) => all + row[field], 0);
    const numbers = {
      queued: sum('queued'),
      running: sum('running'),
      done: sum('done'),
      failed: sum('failed'),
    };
    return { name: 'total', kind: '', ...numbers, perSecond: sum('perSecond'), note: '' };
  }

  picture(workers: readonly string[], producers: readonly string[], link: string | undefined): Picture {
    return {
      rows: this.#rows,
      total: this.total,
      workers,
      producers,
      news: this.#news,
      ...(link === undefined ? {} : { link }),
    };
  }

  async #numbers(): Promise<Readonly<Record<string, Numbers>>> {
    const { tasks } = this.#mill;
    const count = (
      ...status: ('pending' | 'processing' | 'processing_dirty' | 'failed')[]
    ): Promise<number> => tasks.count({ task: SHIP_ORDER, status });
    const [{ names }, shop, pending, processing, failed] = await Promise.all([
      this.#mill.jobs.stats(),
      this.#shop.counts(),
      count('pending'),
      count('processing', 'processing_dirty'),
      count('failed'),
    ]);
    const ofJobs = JOB_NAMES.map((name): [string, Numbers] => {
      const {
        pending: queued = 0,
        processing: running = 0,
        completed = 0,
        failed: lost = 0,
      } = names[name] ?? {};
      // A schedule is one job that never completes; workers report its runs.
      return [
        name,
        { queued, running, done: name === takePulse.name ? this.#reports.pulse : completed, failed: lost },
      ];
    });
    this.#counted = shop;
    return {
      ...Object.fromEntries(ofJobs),
      [SHIP_ORDER]: { queued: pending, running: processing, done: shop.shipped, failed },
      [SEND_DIGEST]: { ...NONE, done: shop.sent },
    };
  }
  #counted: ShopCounts = { placed: 0, paid: 0, shipped: 0, sent: 0 };

  async #notes(): Promise<Readonly<Record<string, string>>> {
    const [{ items }, pulse] = await Promise.all([
      this.#mill.jobs.find({ name: buildReport.name, status: 'processing' }),
      this.#mill.schedules.get(takePulse.name),
    ]);
    const nextRunAt = pulse?.nextRunAt;
    return {
      [sendEmail.name]: '',
      [buildReport.name]: bars(items),
      [chargeCard.name]: `${String(this.#reports.retry)} retried`,
      [syncAccount.name]: `${String(this.#reports.repeat)} duplicates`,
      [takePulse.name]: nextRunAt instanceof Date ? `next ${relative(nextRunAt, Date.now())}` : '',
      [SHIP_ORDER]: `${String(this.#counted.placed)} unpaid`,
      [SEND_DIGEST]: `${String(DIGESTS.length)} documents`,
    };
  }

  #rates(done: Counts): Counts {
    const at = performance.now();
    this.#marks.push({ at, done });
    while (this.#marks.length > 2 && at - (this.#marks[0]?.at ?? at) > WINDOW_MS) this.#marks.shift();
    const first = this.#marks[0] ?? { at, done };
    const seconds = (at - first.at) / 1000;
    const rate = (name: string): number =>
      seconds > 0 ? ((done[name] ?? 0) - (first.done[name] ?? 0)) / seconds : 0;
    return Object.fromEntries(NAMES.map((name) => [name, rate(name)]));
  }
}

function kindOf(name: string): string {
  if (name === SHIP_ORDER) return 'data changed';
  if (name === SEND_DIGEST) return 'its own time';
  return name === takePulse.name ? 'its cron' : 'enqueued';
}

const pieces = (count: number): string => (count === 1 ? '1 job' : `${String(count)} jobs`);

/** The progress of up to two running reports. */
const bars = (items: readonly Job[]): string =>
  items
    .slice(0, 2)
    .map(({ progress }) => bar(Number(progress ?? 0) / 100, 7))
    .join(' ');
