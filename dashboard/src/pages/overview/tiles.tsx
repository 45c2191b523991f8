import type { VNode } from 'preact';
import type { Overview } from '../../../../src/dashboard/contract.js';
import { count, duration } from '../../format.js';

const LIVE_STATUSES = new Set(['processing', 'processing_dirty', 'running', 'locked']);

/** The figures that an engineer on call looks at first. */
export function Tiles({ overview: { series, names, range } }: { readonly overview: Overview }): VNode {
  const done = sum(series.done);
  const failed = sum(series.failed);
  const running = sum(names.map(({ counts }) => sumOf(counts, (status) => LIVE_STATUSES.has(status))));
  const backlog = last(series.backlog);
  const capped = names.some((row) => row.capped.length > 0);
  return (
    <dl class="tiles">
      <Tile label="Done" value={count(done)} note={`in ${range}`} />
      <Tile
        label="Failed for good"
        value={count(failed)}
        note={shareOf(failed, done + failed)}
        bad={failed > 0}
      />
      <Tile label="Running now" value={`${capped ? '≥ ' : ''}${count(running)}`} note="on all instances" />
      <Tile label="Due and waiting" value={backlog === null ? '–' : count(backlog)} note="the backlog" />
      <Tile label="Wait" value={orDash(last(series.waitMs))} note="from due to started" />
      <Tile label="Run" value={orDash(last(series.runMs))} note="of one attempt" />
    </dl>
  );
}

interface TileProps {
  readonly label: string;
  readonly value: string;
  readonly note: string;
  readonly bad?: boolean;
}

function Tile({ label, value, note, bad = false }: TileProps): VNode {
  return (
    <div class={bad ? 'tile tile-bad' : 'tile'}>
      <dt>{label}</dt>
      <dd>
        <b>{value}</b>
        <span>{note}</span>
      </dd>
    </div>
  );
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function sumOf(counts: Readonly<Record<string, number>>, wanted: (status: string) => boolean): number {
  return sum(Object.entries(counts).flatMap(([status, value]) => (wanted(status) ? [value] : [])));
}

function last(values: readonly (number | null)[]): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

function orDash(ms: number | null): string {
  return ms === null ? '–' : duration(ms);
}

function shareOf(part: number, whole: number): string {
  if (part === 0) return 'none';
  return `${((100 * part) / whole).toFixed(1)} % of ended work`;
}
