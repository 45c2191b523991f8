import type { Job, Tidemill } from 'tidemill';
import type { Report } from './crew.js';
import { buildReport, chargeCard, NAMES, sendEmail, syncAccount, takePulse } from './jobs.js';
import type { Picture, Row } from './screen.js';

/** The rate is that of this many seconds. */
const WINDOW_MS = 5_000;

type Counts = Readonly<Record<string, number>>;

/** What the demo knows: counts from the store, the rest from what the children report. */
export class Board {
  readonly #mill: Tidemill;
  readonly #reports = { repeat: 0, retry: 0, pulse: 0, recovered: 0, handedBack: 0 };
  readonly #news: string[] = [];
  /** Jobs done by name at recent moments, the oldest first. */
  readonly #marks: { at: number; done: Counts }[] = [];
  #rows: readonly Row[] = NAMES.map((name) => emptyRow(name));
  /** Workers that had an accident. */
  struck = 0;

  constructor(mill: Tidemill) {
    this.#mill = mill;
  }

  /** Jobs that an accident took from their worker. */
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
      this.tell(`${from} found the lease over: ${jobs(report.count)} of the killed worker handed on`);
    if (report.kind === 'handedBack') this.tell(`${from} gave back ${jobs(report.count)}, which others run`);
  }

  async read(): Promise<void> {
    const { names } = await this.#mill.jobs.stats();
    const { items } = await this.#mill.jobs.find({ name: buildReport.name, status: 'processing' });
    const pulse = await this.#mill.schedules.get(takePulse.name);
    const done = Object.fromEntries(NAMES.map((name) => [name, names[name]?.completed ?? 0]));
    // A schedule is one job that is never done; its runs are counted where they happen.
    done[takePulse.name] = this.#reports.pulse;
    const rates = this.#rates(done);
    const notes: Record<string, string> = {
      [sendEmail.name]: '',
      [buildReport.name]: bars(items),
      [chargeCard.name]: `${this.#reports.retry} tried again`,
      [syncAccount.name]: `${this.#reports.repeat} joined a live one`,
      [takePulse.name]: `every 5 s, next ${clock(pulse?.nextRunAt)}`,
    };
    this.#rows = NAMES.map((name) => ({
      name,
      queued: names[name]?.pending ?? 0,
      running: names[name]?.processing ?? 0,
      done: done[name] ?? 0,
      failed: names[name]?.failed ?? 0,
      perSecond: rates[name] ?? 0,
      note: notes[name] ?? '',
    }));
  }

  get total(): Row {
    const sum = (field: 'queued' | 'running' | 'done' | 'failed' | 'perSecond'): number =>
      this.#rows.reduce((all, row) => all + row[field], 0);
    return {
      name: 'total',
      queued: sum('queued'),
      running: sum('running'),
      done: sum('done'),
      failed: sum('failed'),
      perSecond: sum('perSecond'),
      note: '',
    };
  }

  picture(workers: readonly string[], producers: readonly string[]): Picture {
    return { rows: this.#rows, total: this.total, workers, producers, news: this.#news };
  }

  #rates(done: Counts): Counts {
    const at = performance.now();
    this.#marks.push({ at, done });
    while (this.#marks.length > 2 && at - this.#marks[0]!.at > WINDOW_MS) this.#marks.shift();
    const first = this.#marks[0]!;
    const seconds = (at - first.at) / 1000;
    const rate = (name: string): number =>
      seconds > 0 ? ((done[name] ?? 0) - (first.done[name] ?? 0)) / seconds : 0;
    return Object.fromEntries(NAMES.map((name) => [name, rate(name)]));
  }
}

const jobs = (count: number): string => (count === 1 ? '1 job' : `${count} jobs`);

const clock = (at: Date | null | undefined): string => at?.toTimeString().slice(0, 8) ?? '-';

const emptyRow = (name: string): Row => ({
  name,
  queued: 0,
  running: 0,
  done: 0,
  failed: 0,
  perSecond: 0,
  note: '',
});

/** The progress of running reports, as their handlers tell it. */
function bars(items: readonly Job[]): string {
  const bar = ({ progress }: Job): string => {
    const eighths = Math.round(Number(progress ?? 0) * 8);
    return `${'█'.repeat(eighths)}${'░'.repeat(8 - eighths)}`;
  };
  return items.slice(0, 2).map(bar).join(' ');
}
