import { readdirSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CATALOGUE } from '../../src/metrics/catalogue.js';
import { families } from '../../src/metrics/families.js';
import { Counters } from '../../src/metrics/counters.js';
import type { Shared } from '../../src/store/metrics.js';

const root = resolve(import.meta.dirname, '../..');
const boards = readdirSync(`${root}/grafana`).map((file) => [file] as const);

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly expr: string; readonly datasource: { readonly uid: string } }[];
}

interface Board {
  readonly title: string;
  readonly uid: string;
  readonly panels: readonly Panel[];
  readonly templating: {
    readonly list: readonly { readonly name: string; readonly type: string; readonly definition?: string }[];
  };
}

const read = (file: string): Board => JSON.parse(readFileSync(`${root}/grafana/${file}`, 'utf8')) as Board;

/** The names of metrics in an expression, as they were registered. */
const metricsIn = (text: string): string[] =>
  [...text.matchAll(/\b(?:reactive_tasks|tidemill)_\w+/gu)].map(([name]) => {
    const plain = name.replace(/_(?:bucket|sum|count)$/u, '');
    return CATALOGUE[plain]?.type === 'histogram' ? plain : name;
  });

/** Labels that an expression selects or groups by, except those of Prometheus itself. */
const labelsIn = (text: string): string[] => [
  ...[...text.matchAll(/(\w+)\s*(?:=~|!=|=)\s*"/gu)].map(([, label]) => label ?? ''),
  ...[...text.matchAll(/\bby \(([^)]*)\)/gu)].flatMap(([, list]) => (list ?? '').split(/,\s*/u)),
];

describe.each(boards)('the Grafana dashboard %s', (file) => {
  const board = read(file);
  const queries = [
    ...board.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)),
    ...board.templating.list.flatMap(({ definition = [] }) => definition),
  ];

  it('a Grafana dashboard queries only existing metrics and their labels', () => {
    expect(queries.length).toBeGreaterThan(10);
    for (const query of queries) {
      const names = metricsIn(query);
      expect(names, query).not.toEqual([]);
      expect(
        names.filter((name) => CATALOGUE[name] === undefined),
        query,
      ).toEqual([]);
      const known = new Set(['le', 'instance', ...names.flatMap((name) => CATALOGUE[name]?.labels ?? [])]);
      expect(
        labelsIn(query).filter((label) => !known.has(label)),
        query,
      ).toEqual([]);
    }
  });

  it('a Grafana dashboard can be imported: unique ids, a data source variable, no overlapping panels', () => {
    const { panels, templating, title, uid } = board;
    expect([title, uid].every((text) => text.length > 0)).toBe(true);
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    expect(templating.list[0]).toMatchObject({ name: 'datasource', type: 'datasource' });
    const sources = panels.flatMap(({ targets = [] }) => targets.map(({ datasource }) => datasource.uid));
    expect(new Set(sources)).toEqual(new Set(['${datasource}']));
    const taken = new Set<string>();
    for (const { gridPos: at } of panels)
      for (let x = at.x; x < at.x + at.w; x += 1)
        for (let y = at.y; y < at.y + at.h; y += 1) {
          expect(taken.has(`${String(x)}/${String(y)}`)).toBe(false);
          taken.add(`${String(x)}/${String(y)}`);
        }
    expect(panels.every(({ gridPos: { x, w } }) => x + w <= 24)).toBe(true);
  });
});

describe('the Grafana dashboard of reactive tasks', () => {
  it('the Grafana dashboard of reactive tasks has its four groups of panels', () => {
    const board = read('reactive_tasks.json');
    expect(board.title).toBe('Reactive Tasks - System Overview');
    expect(board.panels.filter(({ type }) => type === 'row').map(({ title }) => title)).toEqual([
      'System Health & Global Lag',
      'Throughput & Latency Heatmaps',
      'Queue Depth & Composition',
      'Error Rates & Retries',
    ]);
  });
});

describe('the catalogue of metrics', () => {
  it('the catalogue contains exactly the metrics that can be exported, with their labels', () => {
    const counters = new Counters([10], () => undefined);
    counters.enqueued('a', 1);
    counters.began('task', 'a', 0, 5);
    counters.ended('task', 'a', 'completed', 10, 5);
    counters.lost('task', 'a');
    counters.reclaimed('task', 'a');
    counters.limitStarted('job:a', 1);
    counters.limitHeldUp('shared:b', 'rate');
    counters.leaseLost();
    counters.planned(3);
    counters.reconciled();
    counters.historyLost();
    const reconciling = [{ collection: 'orders', processed: 4 }];
    const planner = { lagMs: 1, headroomMs: 2, lastReconciledAt: 3, reconciling, setAside: 5 };
    const vitals = { running: 1, buffered: 0, abandoned: 0, wakeUp: 'stream', planner } as const;
    const share: Shared = { id: 'a', instanceId: 'i', everyMs: 1_000, ageMs: 0, vitals };
    const task = [{ name: 'a', counts: { pending: 1 }, due: 1, lagMs: 5 }];
    const outbox = { changes: 1, ageMs: 2, limit: 3, stopped: false, missed: false };
    const limits = [
      {
        kind: 'shared',
        name: 'b',
        running: 1,
        capacity: 2,
        windowStarts: 3,
        windowCapacity: 4,
        waiting: 5,
        breaker: 'open',
      },
    ] as const;
    const cluster = { instances: 1, depths: { job: [], task, document: [] }, limits, outbox };
    const told = families({
      counts: counters.counts(),
      shares: [share],
      planner: share,
      cluster,
      bounds: [10],
    });
    expect(told.map(({ name }) => name).sort()).toEqual(Object.keys(CATALOGUE).sort());
    for (const { name, values } of told)
      for (const { labels } of values)
        expect(Object.keys(labels).filter((label) => label !== 'le')).toEqual([
          ...(CATALOGUE[name]?.labels ?? []),
        ]);
  });
});

describe('the metrics guide', () => {
  it('docs/metrics.md lists exactly the metrics of the catalogue, with type and labels', () => {
    const guide = readFileSync(`${root}/docs/metrics.md`, 'utf8');
    const rows = [
      ...guide.matchAll(
        /^\| `((?:reactive_tasks|tidemill)_\w+)` \| (\w+) \| ([^|]*)\| (?:all|cluster|instance) \|/gmu,
      ),
    ];
    const said = rows.map(([, name = '', type, labels = '']) => [
      name,
      type,
      [...labels.matchAll(/`(\w+)`/gu)].map(([, label]) => label),
    ]);
    expect(said).toEqual(
      Object.entries(CATALOGUE).map(([name, { type, labels }]) => [name, type, [...labels]]),
    );
  });

  it('docs/metrics.md suggests alerts on existing metrics only', () => {
    const guide = readFileSync(`${root}/docs/metrics.md`, 'utf8');
    const alerts = guide.slice(guide.indexOf('## Alerts'), guide.indexOf('## The last day'));
    expect(metricsIn(alerts).filter((name) => CATALOGUE[name] === undefined)).toEqual([]);
  });
});
