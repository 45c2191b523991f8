import type { VNode } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { useCell } from '../cell.js';
import { isDark } from '../theme.js';
import { chartOptions, type Line } from './chart-options.js';

export type { Line } from './chart-options.js';

interface ChartProps {
  readonly title: string;
  /** What the chart shows, for screen readers. */
  readonly summary: string;
  readonly from: string;
  readonly stepMs: number;
  readonly lines: readonly Line[];
  readonly format: (value: number) => string;
}

const HEIGHT = 168;

/**
 * A chart of fixed height with its legend. The legend shows the values at the pointer; without one, sums and newest
 * values.
 */
export function Chart({ title, summary, from, stepMs, lines, format }: ChartProps): VNode {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const [hovered, hover] = useState<number | null>(null);
  const dark = useCell(isDark);
  const data = useMemo(() => toData(from, stepMs, lines), [from, stepMs, lines]);
  const latest = useRef(data);
  latest.current = data;

  useEffect(() => {
    const box = place.current;
    if (box === null) return undefined;
    const options = chartOptions({ lines, format, width: box.clientWidth, height: HEIGHT, stepMs, hover });
    const made = new uPlot(options, latest.current, box);
    plot.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: box.clientWidth, height: HEIGHT }));
    resized.observe(box);
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = undefined;
    };
    // Created again if its appearance changes; new values alone are passed on below.
  }, [dark, stepMs, lines.length]);

  useEffect(() => plot.current?.setData(data), [data]);

  return (
    <figure class="chart">
      <figcaption>
        <h2>{title}</h2>
        <Legend lines={lines} at={hovered} format={format} />
      </figcaption>
      <div ref={place} class="chart-canvas" role="img" aria-label={`${title}. ${summary}`} />
    </figure>
  );
}

interface LegendProps {
  readonly lines: readonly Line[];
  readonly at: number | null;
  readonly format: (value: number) => string;
}

function Legend({ lines, at, format }: LegendProps): VNode {
  return (
    <ul class="legend">
      {lines.map((line) => {
        const value = at === null ? atRest(line) : line.values[at];
        return (
          <li key={line.label} class={`mark-${line.color}`}>
            {line.label} <b>{value === null || value === undefined ? '–' : format(value)}</b>
          </li>
        );
      })}
    </ul>
  );
}

/** Counts are summed; of measurements, the newest is shown. */
function atRest({ shape, values }: Line): number | null | undefined {
  if (shape !== 'bars') return values.findLast((known) => known !== null);
  return values.reduce<number>((sum, value) => sum + (value ?? 0), 0);
}

function toData(from: string, stepMs: number, lines: readonly Line[]): uPlot.AlignedData {
  const start = Date.parse(from) / 1000;
  const length = lines[0]?.values.length ?? 0;
  const times = Array.from({ length }, (_, i) => start + (i * stepMs) / 1000);
  return [times, ...lines.map(({ values }) => [...values])];
}
