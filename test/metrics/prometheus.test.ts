import { describe, expect, it, vi } from 'vitest';
import { FatalError, Tidemill, type TidemillOptions } from '../../src/index.js';
import { memory, type MemoryStore } from '../../src/memory/index.js';
import { Prometheus } from '../../src/metrics/prometheus.js';
import { virtualClock } from '../../src/testing/index.js';
import { safeLogger } from '../../src/core/logger.js';
import { aMill, until } from '../support/mills.js';
import { keepLines } from '../reactive/mills.js';
import { scraped, under } from './text.js';

/** An instance that runs two names, one of which fails. */
async function working(store: MemoryStore, options: Partial<TidemillOptions> = {}): Promise<Tidemill> {
  const mill = aMill(store, options);
  mill.job('mail', () => undefined);
  mill.job('report', () => {
    throw new FatalError('no paper');
  });
  await mill.start();
  return mill;
}

const ended = (mill: Tidemill, count: number): Promise<unknown> =>
  until(`${String(count)} have ended`, async () => {
    const [done, failed] = await Promise.all(
      (['completed', 'failed'] as const).map((status) => mill.jobs.count({ status })),
    );
    return (done ?? 0) + (failed ?? 0) === count;
  });

describe('the count of enqueued jobs', () => {
  it('leaves out those of a transaction that was rolled back', async () => {
    const mill = aMill(memory());
    await mill.withTransaction(async (transaction) => {
      await mill.enqueue('mail', {}, { transaction });
      await mill.enqueueMany([
        { name: 'mail', transaction },
        { name: 'report', transaction },
      ]);
    });
    const undone = mill.withTransaction(async (transaction) => {
      await mill.enqueue('mail', {}, { transaction });
      throw new Error('roll back');
    });
    await expect(undone).rejects.toThrow('roll back');
    await mill.enqueue('report');
    const counts = under(await scraped(mill), 'tidemill_enqueued_total');
    expect(counts).toEqual({ '{name="mail"}': 2, '{name="report"}': 2 });
  });
});

describe('a scrape in cluster mode', () => {
  it('a cluster scrape returns the same totals on every instance, and keeps those of stopped ones', async () => {
    const store = memory();
    const [one, two] = [await working(store), await working(store)];
    await one.enqueueMany(Array.from({ length: 20 }, () => ({ name: 'mail' })));
    await two.enqueue('report');
    await ended(one, 21);
    // Each instance is scraped once, so that each has pushed; from then on all know everything.
    await scraped(two);
    const all = await scraped(one);
    expect(under(all, 'tidemill_attempts_total')).toEqual({
      '{kind="job",name="mail",outcome="completed"}': 20,
      '{kind="job",name="report",outcome="failed"}': 1,
    });
    expect(under(all, 'tidemill_enqueued_total')).toEqual({ '{name="mail"}': 20, '{name="report"}': 1 });
    expect(all.get('tidemill_duration_seconds_count{kind="job",name="mail",status="success"}')).toBe(20);
    expect(all.get('tidemill_wait_seconds_bucket{le="+Inf",kind="job",name="mail"}')).toBe(20);
    expect(all.get('tidemill_instances')).toBe(2);
    expect(under(all, 'tidemill_wake_up')).toEqual({ '{mode="direct"}': 2 });
    expect(under(all, 'tidemill_queue_depth{kind="job",name="report",')).toEqual({
      'status="due"}': 0,
      'status="pending"}': 0,
      'status="processing"}': 0,
      'status="failed"}': 1,
    });
    expect([...(await scraped(two))].filter(([name]) => name.includes('_total'))).toEqual(
      [...all].filter(([name]) => name.includes('_total')),
    );
    await two.stop();
    const later = await scraped(one);
    expect(under(later, 'tidemill_attempts_total')).toEqual(under(all, 'tidemill_attempts_total'));
    expect(later.get('tidemill_instances')).toBe(1);
    expect(under(later, 'tidemill_wake_up')).toEqual({ '{mode="direct"}': 1 });
  });

  it('a cluster scrape includes a producer that is neither scraped nor started', async () => {
    const clock = virtualClock('2026-01-01');
    const store = memory({ clock });
    const asked = await working(store);
    const producer = aMill(store);
    await producer.enqueue('mail');
    await clock.advance('61s');
    expect((await scraped(asked)).get('tidemill_enqueued_total{name="mail"}')).toBe(1);
  });

  it('a cluster scrape drops the vitals of a dead instance and keeps its counts', async () => {
    const clock = virtualClock('2026-01-01');
    const store = memory({ clock });
    const growth = new Map([['job:mail', { completed: 5 }]]);
    const vitals = { running: 9, buffered: 0, abandoned: 0, planner: { lagMs: 0, reconciling: [] } };
    await store.metrics.push({ id: 'a', number: 1, instanceId: 'dead', everyMs: 60_000, growth, vitals });
    const mill = await working(store);
    expect((await scraped(mill)).get('tidemill_running')).toBe(9);
    await clock.advance('3m1s');
    const later = await scraped(mill);
    expect(later.get('tidemill_running')).toBe(0);
    expect(later.get('tidemill_attempts_total{kind="job",name="mail",outcome="completed"}')).toBe(5);
    // There is no planner any more: changes since then are waiting.
    expect(later.get('tidemill_planner_leaders')).toBe(0);
    expect(later.get('reactive_tasks_change_stream_lag_seconds')).toBeGreaterThan(180);
  });

  it('a cluster scrape drops the queue depth of a name that has disappeared', async () => {
    const store = memory();
    const mill = aMill(store);
    await mill.start();
    const job = await mill.enqueue('old', {}, { delay: '1h' });
    expect((await scraped(mill)).get('tidemill_queue_depth{kind="job",name="old",status="pending"}')).toBe(1);
    await mill.jobs.remove(job.id);
    expect([...(await scraped(mill)).keys()].filter((name) => /^tidemill_(?:queue|lag)/u.test(name))).toEqual(
      [],
    );
  });
});

describe('a scrape in local mode', () => {
  it("a local scrape counts the instance's own work, and one instance adds cluster metrics", async () => {
    const store = memory();
    const options = { monitoring: { scrapeMode: 'local' } } as const;
    const mills = [await working(store, options), await working(store, options)];
    await mills[0]!.enqueueMany(Array.from({ length: 40 }, () => ({ name: 'mail' })));
    await ended(mills[0]!, 40);
    const scrapes = await Promise.all(mills.map(scraped));
    const done = 'tidemill_attempts_total{kind="job",name="mail",outcome="completed"}';
    expect(scrapes.reduce((sum, values) => sum + (values.get(done) ?? 0), 0)).toBe(40);
    expect(scrapes.filter((values) => values.has('tidemill_instances'))).toHaveLength(1);
    expect(
      scrapes.filter((values) => [...values.keys()].some((key) => key.includes('queue_depth'))),
    ).toHaveLength(1);
    // Its counts stay in the process.
    expect((await store.metrics.read()).counts.size).toBe(0);
  });
});

describe('monitoring options', () => {
  it('monitoring.enabled: false returns null, counts nothing and stores nothing', async () => {
    const store = memory();
    const push = vi.spyOn(store.metrics, 'push');
    const save = vi.spyOn(store.metrics, 'saveMinutes');
    const mill = await working(store, { monitoring: { enabled: false } });
    await mill.enqueue('mail');
    await ended(mill, 1);
    expect(await mill.getPrometheusMetrics()).toBeNull();
    await mill.stop();
    expect([push.mock.calls, save.mock.calls]).toEqual([[], []]);
  });

  it('monitoring.buckets are in seconds', async () => {
    const mill = await working(memory(), { monitoring: { buckets: [0.5, 30] } });
    await mill.enqueue('mail');
    await ended(mill, 1);
    const buckets = under(await scraped(mill), 'tidemill_duration_seconds_bucket');
    expect(Object.keys(buckets).map((labels) => /le="([^"]+)"/u.exec(labels)?.[1])).toEqual([
      '0.5',
      '30',
      '+Inf',
    ]);
  });

  it.each([
    [{ enable: true }, 'unknown option "enable". Did you mean "enabled"?'],
    [{ scrapeMode: 'global' }, 'scrapeMode must be one of cluster, local, got "global"'],
    [{ pushIntervalMs: 5 }, 'pushIntervalMs must be a duration of at least 100 ms'],
    [{ readPreference: 'secundary' }, 'Did you mean "secondary"?'],
    [{ buckets: [1, 1] }, 'buckets must be 1 to 100 ascending numbers of seconds'],
    [{ buckets: [] }, 'such as [0.01, 0.1, 1, 10]; got []'],
    [{ buckets: ['1'] }, 'got ["1"]'],
  ])('rejects monitoring options %j with the fix', (monitoring, message) => {
    expect(() => new Tidemill({ store: memory(), monitoring: monitoring as never })).toThrow(message);
  });

  it('monitoring.pushIntervalMs accepts a duration text', () => {
    expect(() => new Tidemill({ store: memory(), monitoring: { pushIntervalMs: '15s' } })).not.toThrow();
  });
});

describe('prom-client', () => {
  it('a missing prom-client is logged once, and there is no client', async () => {
    const { logger, lines } = keepLines();
    const missing = Object.assign(new Error('Cannot find package'), { code: 'ERR_MODULE_NOT_FOUND' });
    const prometheus = new Prometheus(safeLogger(logger), () => Promise.reject(missing));
    expect([await prometheus.client(), await prometheus.client()]).toEqual([null, null]);
    expect(lines.map(({ text }) => text)).toEqual([expect.stringContaining('npm install prom-client')]);
  });

  it('an error while loading prom-client rejects', async () => {
    const prometheus = new Prometheus(safeLogger(false), () => Promise.reject(new Error('odd')));
    await expect(prometheus.client()).rejects.toThrow('odd');
  });
});
