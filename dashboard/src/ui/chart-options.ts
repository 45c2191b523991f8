import uPlot from 'uplot';
import { axisWidth } from './axis-width.js';

/** Names of colours in styles/theme.css: `--mark-done` and so on. */
type Mark = 'done' | 'failed' | 'retried' | 'wait' | 'run' | 'backlog';

export interface Line {
  readonly label: string;
  readonly color: Mark;
  readonly values: readonly (number | null)[];
  readonly shape: 'bars' | 'line' | 'area';
}

interface ChartLook {
  readonly lines: readonly Line[];
  readonly format: (value: number) => string;
  readonly width: number;
  readonly height: number;
  readonly stepMs: number;
  readonly hover: (index: number | null) => void;
}

const AXIS_HEIGHT = 26;
const BAR_SHARE = 0.72;
const BAR_MAX = 26;
/** Pointing at a time in one chart points at it in all of them. */
const sync = uPlot.sync('tidemill');

export function chartOptions({ lines, format, width, height, stepMs, hover }: ChartLook): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  const font = `11px ${style.getPropertyValue('--font')}`;
  const grid = { stroke: color('line-soft'), width: 1 };
  const axis = { stroke: color('muted'), font, grid, ticks: { show: false } };
  return {
    width,
    height,
    padding: [10, 8, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: sync.key }, drag: { x: false, y: false }, points: { size: 6 } },
    scales: {
      // Half a step on each side, so that the first and the last bar are complete.
      x: { range: (_plot, min, max) => [min - stepMs / 2000, max + stepMs / 2000] },
      y: { range: (_plot, _min, max) => [0, roomAbove(max)] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: AXIS_HEIGHT,
        space: 64,
        values: (_plot, times) => times.map(clock),
      },
      {
        ...axis,
        size: ({ ctx }, labels: readonly string[] | null) => {
          ctx.font = `${11 * devicePixelRatio}px ${style.getPropertyValue('--font')}`;
          return axisWidth(labels ?? [], (label) => ctx.measureText(label).width / devicePixelRatio);
        },
        space: 36,
        values: (_plot, values) => values.map(format),
      },
    ],
    series: [{}, ...lines.map((line) => series(line, color(`mark-${line.color}`)))],
    hooks: { setCursor: [(plot) => hover(plot.cursor.idx ?? null)] },
  };
}

function series({ label, shape }: Line, stroke: string): uPlot.Series {
  if (shape === 'bars') {
    const paths = uPlot.paths.bars?.({ size: [BAR_SHARE, BAR_MAX], radius: 0.18 });
    return { label, stroke, fill: stroke, width: 0, points: { show: false }, ...(paths ? { paths } : {}) };
  }
  const fill = shape === 'area' ? { fill: `${stroke}26` } : {};
  // A gap means that nothing was measured. A single value between two gaps must still be visible.
  return {
    label,
    stroke,
    width: 1.75,
    spanGaps: false,
    points: { show: lone, size: 5, fill: stroke },
    ...fill,
  };
}

function lone(plot: uPlot, line: number): boolean {
  const values = plot.data[line] ?? [];
  return values.some((value, i) => isGap(values[i - 1]) && !isGap(value) && isGap(values[i + 1]));
}

const isGap = (value: number | null | undefined): boolean => value === null || value === undefined;

/** An empty chart keeps an axis from 0 to 1. */
function roomAbove(max: number | null): number {
  return max === null || max <= 0 ? 1 : max * 1.08;
}

function clock(seconds: number): string {
  const date = new Date(seconds * 1000);
  return `${two(date.getHours())}:${two(date.getMinutes())}`;
}

const two = (value: number): string => String(value).padStart(2, '0');
