import { facts, table, type Column } from './render/table.js';
import { harmless, jsonText, painter, type Paint } from './render/text.js';
import type { Terminal } from './terminal.js';

export interface OutputOptions {
  readonly json: boolean;
  readonly color: boolean;
  /** Removes credentials from a text. */
  readonly hide: (text: string) => string;
}

/** Writes the result of a command to stdout, and remarks to stderr. With `--json`, stdout contains only JSON. */
export class Output {
  readonly json: boolean;
  readonly paint: Paint;
  /** The width of the terminal; undefined if stdout is not a terminal. */
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

  /** Removes credentials from a text. `print` and `note` do so themselves. */
  safe(text: string): string {
    return this.#hide(text);
  }

  /** Prints for people; does nothing with `--json`. */
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

  /** Prints one JSON document; does nothing without `--json`. */
  document(value: unknown): void {
    if (this.json) this.#terminal.stdout.write(`${jsonText(value, 2)}\n`);
  }

  /** Prints a list as one line of JSON per item; does nothing without `--json`. */
  lines(values: readonly unknown[]): void {
    if (this.json) for (const value of values) this.#terminal.stdout.write(`${jsonText(value)}\n`);
  }

  /** Writes a remark to stderr, which is not part of the result. */
  note(text: string): void {
    this.#terminal.stderr.write(`${harmless(this.#hide(text), false)}\n`);
  }
}
