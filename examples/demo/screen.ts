import { styleText } from 'node:util';

export interface Row {
  readonly name: string;
  readonly queued: number;
  readonly running: number;
  readonly done: number;
  readonly failed: number;
  readonly perSecond: number;
  readonly note: string;
}

export interface Picture {
  readonly rows: readonly Row[];
  readonly total: Row;
  readonly workers: readonly string[];
  readonly producers: readonly string[];
  readonly news: readonly string[];
}

const PLAIN_EVERY_MS = 2_000;
const NEWS_SHOWN = 6;
const WIDTHS = { name: 13, number: 8 };

type Style = Parameters<typeof styleText>[0];

/** A terminal is drawn over in place; anything else gets a plain line every two seconds. */
export class Screen {
  readonly #out: NodeJS.WriteStream;
  readonly #colours: boolean;
  #drawn = 0;
  #plainAt = -Infinity;
  #told = 0;

  constructor(out: NodeJS.WriteStream) {
    this.#out = out;
    this.#colours = out.isTTY && process.env['NO_COLOR'] === undefined;
  }

  title(text: string): void {
    this.#out.write(`${this.#style('bold', text)}\n`);
  }

  text(...lines: readonly string[]): void {
    for (const line of lines) this.#out.write(`${line}\n`);
  }

  show(picture: Picture): void {
    if (this.#out.isTTY) this.#draw(picture);
    else this.#line(picture);
  }

  #draw(picture: Picture): void {
    const width = this.#out.columns;
    // More lines than the terminal has could not be drawn over.
    const visible = this.#lines(picture).slice(0, this.#out.rows - 1);
    const lines = visible.map(({ text, style }) => this.#style(style, cut(text, width - 1)));
    const back = this.#drawn > 0 ? `\u001B[${this.#drawn}A` : '';
    this.#out.write(`${back}\u001B[0J${lines.join('\n')}\n`);
    this.#drawn = lines.length;
  }

  #lines({ rows, total, workers, producers, news }: Picture): { text: string; style: Style }[] {
    const heads = ['queued', 'running', 'done', 'failed', 'jobs/s'].map((head) =>
      head.padStart(WIDTHS.number),
    );
    const shown = news.slice(-NEWS_SHOWN);
    const blank = { text: '', style: 'reset' as const };
    return [
      blank,
      { text: `${''.padEnd(WIDTHS.name)}${heads.join('')}`, style: 'dim' },
      ...rows.map((row) => ({ text: rowText(row), style: 'reset' as const })),
      { text: rowText(total), style: 'bold' },
      blank,
      { text: `${String(workers.length)} workers alive: ${workers.join(', ')}`, style: 'green' },
      { text: `${String(producers.length)} producers: ${producers.join(', ')}`, style: 'green' },
      blank,
      ...shown.map((text) => ({ text, style: 'yellow' as const })),
      ...Array.from({ length: NEWS_SHOWN - shown.length }, () => blank),
    ];
  }

  #line({ total, workers, news }: Picture): void {
    const now = performance.now();
    if (now - this.#plainAt < PLAIN_EVERY_MS) return;
    this.#plainAt = now;
    for (const text of news.slice(this.#told)) this.#out.write(`${text}\n`);
    this.#told = news.length;
    const { queued, running, done, failed, perSecond } = total;
    this.#out.write(
      `queued ${queued}, running ${running}, done ${done}, failed ${failed}, ` +
        `${perSecond.toFixed(1)} jobs/s, ${workers.length} workers alive\n`,
    );
  }

  #style(style: Style, text: string): string {
    return this.#colours ? styleText(style, text) : text;
  }
}

function rowText({ name, queued, running, done, failed, perSecond, note }: Row): string {
  const numbers = [queued, running, done, failed].map((number) => number.toLocaleString('en-US'));
  const columns = [...numbers, perSecond.toFixed(1)].map((text) => text.padStart(WIDTHS.number));
  return `${name.padEnd(WIDTHS.name)}${columns.join('')}  ${note}`;
}

/** A line that wraps would spoil the count of lines to go back. */
const cut = (text: string, width: number): string => (text.length > width ? text.slice(0, width) : text);
