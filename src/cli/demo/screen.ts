import { cut, painter, type Paint, type Style } from '../render/text.js';
import type { Sink, Terminal } from '../terminal.js';

export interface Row {
  readonly name: string;
  /** What makes it due. */
  readonly kind: string;
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
  /** The link to the dashboard. */
  readonly link?: string;
}

const PLAIN_EVERY_MS = 2_000;
const NEWS_SHOWN = 3;
const WIDTHS = { name: 13, kind: 13, number: 7 };

/** Redraws a terminal in place. Any other output gets a plain line every two seconds. */
export class Screen {
  readonly #out: Sink;
  readonly #paint: Paint;
  #drawn = 0;
  #plainAt = -Infinity;
  #told = 0;
  #linked: string | undefined;

  constructor({ stdout, env }: Terminal, color: boolean) {
    this.#out = stdout;
    this.#paint = painter(stdout, env, color);
  }

  title(text: string): void {
    this.#out.write(`${this.#paint('bold', text)}\n`);
  }

  text(...lines: readonly string[]): void {
    for (const line of lines) this.#out.write(`${line}\n`);
  }

  /** Shown until the first picture replaces it. */
  wait(text: string): void {
    if (this.#out.isTTY !== true) return;
    this.#out.write(`${this.#paint('dim', text)}\n`);
    this.#drawn = 1;
  }

  show(picture: Picture): void {
    if (this.#out.isTTY === true) this.#draw(picture);
    else this.#line(picture);
  }

  #draw(picture: Picture): void {
    const { columns = 80, rows = 24 } = this.#out;
    // Lines beyond the height of the terminal could not be redrawn.
    const visible = this.#lines(picture).slice(0, rows - 1);
    const lines = visible.map(({ text, style }) => this.#paint(style, cut(text, columns - 1)));
    const back = this.#drawn > 0 ? `\u001B[${String(this.#drawn)}A` : '';
    this.#out.write(`${back}\u001B[0J${lines.join('\n')}\n`);
    this.#drawn = lines.length;
  }

  #lines({ rows, total, workers, producers, news, link }: Picture): { text: string; style: Style }[] {
    const heads = ['queued', 'runs', 'done', 'failed', 'per s'].map((head) => head.padStart(WIDTHS.number));
    const shown = news.slice(-NEWS_SHOWN);
    const blank = { text: '', style: 'reset' as const };
    return [
      ...(link === undefined ? [] : [{ text: `Dashboard  ${link}`, style: 'cyan' as const }]),
      blank,
      {
        text: `${''.padEnd(WIDTHS.name)}${'due because'.padEnd(WIDTHS.kind)}${heads.join('')}`,
        style: 'dim',
      },
      ...rows.map((row) => ({ text: rowText(row), style: 'reset' as const })),
      { text: rowText(total), style: 'bold' },
      blank,
      {
        text: `${String(workers.length)} workers: ${workers.join(', ')} · ${String(producers.length)} producers`,
        style: 'green',
      },
      ...shown.map((text) => ({ text, style: 'yellow' as const })),
      ...Array.from({ length: NEWS_SHOWN - shown.length }, () => blank),
    ];
  }

  #line({ rows, total, workers, news, link }: Picture): void {
    const now = performance.now();
    if (now - this.#plainAt < PLAIN_EVERY_MS) return;
    this.#plainAt = now;
    if (link !== undefined && link !== this.#linked) this.#out.write(`Dashboard  ${link}\n`);
    this.#linked = link;
    for (const text of news.slice(this.#told)) this.#out.write(`${text}\n`);
    this.#told = news.length;
    const { queued, running, done, failed, perSecond } = total;
    const each = rows.map((row) => `${row.name} ${String(row.done)}`).join(', ');
    this.#out.write(
      `queued ${String(queued)}, running ${String(running)}, failed ${String(failed)}, ${perSecond.toFixed(1)} per s, ` +
        `${String(workers.length)} workers; done ${String(done)}: ${each}\n`,
    );
  }
}

function rowText({ name, kind, queued, running, done, failed, perSecond, note }: Row): string {
  const numbers = [queued, running, done, failed].map((number) => number.toLocaleString('en-US'));
  const columns = [...numbers, perSecond.toFixed(1)].map((text) => text.padStart(WIDTHS.number));
  return `${name.padEnd(WIDTHS.name)}${kind.padEnd(WIDTHS.kind)}${columns.join('')}  ${note}`;
}
