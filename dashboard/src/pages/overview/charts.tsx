import type { VNode } from 'preact';
import { useMemo } from 'preact/hooks';
import type { Overview } from '../../../../src/dashboard/contract.js';
import { compact, count, duration, many } from '../../format.js';
import { Chart, type Line } from '../../ui/chart.js';

type Series = Overview['series'];

export function Charts({ series }: { readonly series: Series }): VNode {
  const lines = useMemo(() => linesOf(series), [series]);
  const { from, stepMs } = series;
  const step = duration(stepMs);
  return (
    <div class="charts">
      <Chart
        title="Throughput"
        summary={`${many(total(series.done), 'piece')} of work done in the range.`}
        lines={lines.throughput}
        format={compact}
        {...{ from, stepMs }}
      />
      <Chart
        title="Failures"
        summary={`${count(total(series.failed))} failed for good, ${count(total(series.retried))} attempts retried.`}
        lines={lines.failures}
        format={compact}
        {...{ from, stepMs }}
      />
      <Chart
        title="Latency"
        summary={`Mean wait before start and mean run time per ${step}.`}
        lines={lines.latency}
        format={duration}
        {...{ from, stepMs }}
      />
      <Chart
        title="Backlog"
        summary={`Due work that waits; latest ${count(newest(series.backlog) ?? 0)}.`}
        lines={lines.backlog}
        format={compact}
        {...{ from, stepMs }}
      />
    </div>
  );
}

type Lines = Readonly<Record<'throughput' | 'failures' | 'latency' | 'backlog', readonly Line[]>>;

function linesOf({ done, failed, retried, waitMs, runMs, backlog }: Series): Lines {
  return {
    throughput: [{ label: 'done', color: 'done', values: done, shape: 'bars' }],
    failures: [
      { label: 'retried', color: 'retried', values: retried, shape: 'bars' },
      { label: 'failed', color: 'failed', values: failed, shape: 'bars' },
    ],
    latency: [
      { label: 'wait', color: 'wait', values: waitMs, shape: 'line' },
      { label: 'run', color: 'run', values: runMs, shape: 'line' },
    ],
    backlog: [{ label: 'waiting', color: 'backlog', values: backlog, shape: 'area' }],
  };
}

function total(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

function newest(values: readonly (number | null)[]): number | null {
  return values.findLast((value) => value !== null) ?? null;
}
