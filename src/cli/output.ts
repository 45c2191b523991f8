import { facts, table, type Column } from './render/table.js';
import { harmless, jsonText, painter, type Paint } from './render/text.js';
import type { Terminal } from './terminal.js';

export interface OutputOptions {
  readonly json: boolean;
  readonly color: boolean;
  /** Takes credentials out of a text. */
  readonly hide: (text: string) => string;
}

/** What a command writes: its answer to stdout, and words about it to stderr. With `--json`, stdout has JSON alone. */
export class Output {
  readonly json: boolean;
  readonly paint: Paint;
  /** Of the terminal; undefined where stdout is none. */
  readonly width: number | undefined;
  readonly #terminal: Terminal;
  readonly #hide: (text: string) => string;
  readonly #painted: boolean;

  constructor(terminal: Terminal, { json, color, hide }: OutputOptions) {
    this.json = json;
    this.#terminal = terminal;
    this.#hide = hide;
    this.paint = painter(terminal.stdout, terminal.env, color);
    this.#painted = this.paint('bold', '') !== '';
    this.width = terminal.stdout.isTTY === true ? (terminal.stdout.columns ?? 80) : undefined;
  }

  /** The text without credentials; what is printed for people goes through it by itself. */
  safe(text: string): string {
    return this.#hide(text);
  }

  /** For people; nothing where JSON was asked for. */
  print(...lines: readonly string[]): void {
    if (!this.json)
      for (const line of lines) this.#terminal.stdout.write(`${harmless(this.#hide(line), this.#painted)}\n`);
  }

  table<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): void {
    this.print(table(columns, rows, this.paint, this.width));
  }

  facts(pairs: readonly (readonly [label: string, value: string | undefined])[]): void {
    this.print(facts(pairs, this.paint));
  }

  /** One JSON document; nothing where it was not asked for. */
  document(value: unknown): void {
    if (this.json) this.#terminal.stdout.write(`${jsonText(value, 2)}\n`);
  }

  /** Lists: one line of JSON for each. */
  lines(values: readonly unknown[]): void {
    if (this.json) for (const value of values) this.#terminal.stdout.write(`${jsonText(value)}\n`);
  }

  /** A word to whoever sits there; it is no part of the answer. */
  note(text: string): void {
    this.#terminal.stderr.write(`${harmless(this.#hide(text), false)}\n`);
  }
}
