import { clean, cut, widthOf, type Paint, type Style } from './text.js';

export interface Column<Row> {
  readonly head: string;
  readonly text: (row: Row) => string;
  readonly align?: 'left' | 'right';
  readonly style?: (row: Row) => Style | undefined;
  /** Takes the room left on the line, and is cut to it. At most one per table. */
  readonly grows?: boolean;
}

const GAP = '  ';
const LEAST = 8;

/**
 * Renders aligned columns. `width` is that of the terminal; if undefined, nothing is cut, because a program may read
 * the output.
 */
export function table<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  paint: Paint,
  width: number | undefined,
): string {
  const cells = rows.map((row) => columns.map(({ text }) => clean(text(row))));
  // Empty columns are left out.
  const shown = columns.map((_column, i) => cells.some((line) => line[i] !== ''));
  const widths = columns.map(({ head }, i) =>
    Math.max(widthOf(head), ...cells.map((line) => widthOf(line[i] ?? ''))),
  );
  fit(columns, widths, shown, width);
  const line = (texts: readonly string[], styles: readonly (Style | undefined)[]): string => {
    const parts = columns.flatMap((column, i) => {
      if (shown[i] !== true) return [];
      const text = cut(texts[i] ?? '', widths[i] ?? 0);
      const space = ' '.repeat((widths[i] ?? 0) - widthOf(text));
      const style = styles[i];
      const painted = style === undefined ? text : paint(style, text);
      return [column.align === 'right' ? space + painted : painted + space];
    });
    return parts.join(GAP).trimEnd();
  };
  const heads = line(
    columns.map(({ head }) => head),
    columns.map(() => 'dim' as const),
  );
  const body = rows.map((row, r) =>
    line(
      cells[r] ?? [],
      columns.map(({ style }) => style?.(row)),
    ),
  );
  return [heads, ...body].join('\n');
}

/** Narrows the growing column, so that a line fits. */
function fit<Row>(
  columns: readonly Column<Row>[],
  widths: number[],
  shown: readonly boolean[],
  width: number | undefined,
): void {
  const growing = columns.findIndex(({ grows }) => grows);
  if (width === undefined || growing < 0) return;
  const used = widths
    .filter((_width, i) => shown[i])
    .reduce((sum, one) => sum + one + GAP.length, -GAP.length);
  const over = used - width;
  if (over > 0) widths[growing] = Math.max(LEAST, (widths[growing] ?? 0) - over);
}

/** Renders aligned lines of `label  value`. */
export function facts(
  pairs: readonly (readonly [label: string, value: string | undefined])[],
  paint: Paint,
): string {
  const said = pairs.filter(
    (pair): pair is readonly [string, string] => pair[1] !== undefined && pair[1] !== '',
  );
  const width = Math.max(0, ...said.map(([label]) => widthOf(label)));
  return said.map(([label, value]) => `${paint('dim', label.padEnd(width))}  ${clean(value)}`).join('\n');
}
