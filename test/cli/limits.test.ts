import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Tidemill, type KeyUse, type LimitState } from '../../src/index.js';
import { openStore } from '../../src/mill/opening/open-store.js';
import { gate, until } from '../support/mills.js';
import { freshUri } from '../support/stores.js';
import { linesOf, tidemill, type Ran, type TerminalOptions } from './terminal.js';

describe('tidemill limits', () => {
  const uri = freshUri();
  const held = gate();
  let mill: Tidemill;
  const run = (args: readonly string[], terminal?: TerminalOptions): Promise<Ran> =>
    tidemill(['limits', ...args, '--store', uri], terminal);
  const json = async <T>(args: readonly string[]): Promise<T> =>
    JSON.parse((await run([...args, '--json'])).out) as T;

  beforeAll(async () => {
    mill = new Tidemill({ store: await openStore(uri, {}), logger: false });
    mill.limit('erp-api', { rate: { limit: 100, per: '1m', burst: 5 } });
    mill.job(
      'call-api',
      {
        concurrency: 5,
        limits: { concurrency: 4, perKey: { key: 'customer', concurrency: 1 }, shared: ['erp-api'] },
        breaker: { failures: 20, within: '1m', pause: '30s' },
      },
      () => held.promise,
    );
    await mill.start();
    await mill.enqueueMany(
      ['acme', 'acme', 'acme'].map((customer) => ({ name: 'call-api', data: { customer } })),
    );
    await until('one runs and two wait', async () => {
      const [key] = await mill.limits.keys('call-api');
      return key?.running === 1 && key.due === 2;
    });
  });
  afterAll(async () => {
    held.open();
    await mill.stop();
  });

  it('lists limits with their use, as a table and as lines of JSON', async () => {
    const { code, out } = await run([]);
    expect(code).toBe(0);
    expect(out).toMatch(/^NAME +KIND +RUNNING +STARTS +WAITING +BREAKER +SOURCE +LIMITS\n/u);
    expect(out).toMatch(
      /call-api +job +\d\/4 +2 +closed +code +4 at once · per key 1 at once · shares erp-api · breaker after 20 failures within 1m, for 30s\n/u,
    );
    expect(out).toMatch(/erp-api +shared +\d +\d\/100 +2 +code +100 per 1m, burst 5\n/u);
    const lines = linesOf<LimitState>(await run(['--json']));
    expect(lines.map(({ kind, name }) => [kind, name])).toEqual([
      ['job', 'call-api'],
      ['shared', 'erp-api'],
    ]);
  });

  it('lists the keys that have waited longest', async () => {
    expect((await run(['keys', 'call-api'])).out).toMatch(/KEY +RUNNING +WAITING +SINCE\nacme +1 +2 +/u);
    expect(linesOf<KeyUse>(await run(['keys', 'call-api', '--json']))).toMatchObject([
      { key: 'acme', due: 2 },
    ]);
    const none = await run(['keys', 'erp-api']);
    expect([none.code, none.err]).toEqual([2, expect.stringContaining('has no keys to list')]);
  });

  it('sets a limit by field and resets it after a question; the audit log has both values', async () => {
    const set = await run(['set', 'erp-api', '--concurrency', '2', '--rate', '10/s', '--burst', '3']);
    expect(set.out).toBe(
      'The shared limit erp-api is now: 2 at once · 10 per 1s, burst 3. To undo: tidemill limits reset erp-api\n',
    );
    expect(await json<LimitState>(['set', 'erp-api', '--concurrency', '7'])).toMatchObject({
      limits: { concurrency: 7, rate: { limit: 10, perMs: 1_000, burst: 3 } },
      source: 'set',
    });
    expect((await run([])).out).toMatch(/erp-api .* set +7 at once/u);
    const no = await run(['reset', 'erp-api'], { answers: ['n'] });
    expect(no.questions).toEqual([
      'Reset the shared limit erp-api from "7 at once · 10 per 1s, burst 3" to "100 per 1m, burst 5"? [y/N] ',
    ]);
    expect(no.code).toBe(1);
    const yes = await run(['reset', 'erp-api'], { answers: ['y'] });
    expect(yes.out).toBe('The shared limit erp-api is as the code says: 100 per 1m, burst 5.\n');
    const [last, , first] = (await mill.audit.list()).items;
    const code = { rate: { limit: 100, perMs: 60_000, burst: 5 } };
    expect(last).toMatchObject({
      action: 'limits.reset',
      target: 'shared limit erp-api',
      outcome: 'reset: 100 per 1m, burst 5',
      details: { after: code },
    });
    expect(first).toMatchObject({
      action: 'limits.set',
      outcome: 'set: 2 at once · 10 per 1s, burst 3',
      details: { before: code, after: { concurrency: 2, rate: { limit: 10 } } },
    });
  });

  it('asks before it takes a limit away, and requires --yes without a terminal', async () => {
    const refused = await run(['set', 'erp-api', '--rate', 'none']);
    expect([refused.code, refused.err]).toEqual([2, expect.stringContaining('pass --yes')]);
    expect((await mill.limits.get('erp-api'))?.limits.rate).toBeDefined();
    const taken = await run(['set', 'erp-api', '--rate', 'none', '--concurrency', '9', '--yes']);
    expect(taken.out).toContain('is now: 9 at once.');
    expect((await run(['reset', 'erp-api', '--yes'])).code).toBe(0);
  });

  it('opens a breaker and closes it', async () => {
    const opened = await run(['breaker', 'call-api', 'open']);
    expect(opened.out).toContain('To end it: tidemill limits breaker call-api closed');
    expect((await run([])).out).toMatch(/call-api .* open, tries in \d+s +code/u);
    expect(await json<LimitState>(['breaker', 'call-api', 'closed'])).toMatchObject({
      breaker: { state: 'closed' },
    });
    expect((await mill.audit.list()).items.slice(0, 2)).toMatchObject([
      { action: 'limits.breaker', target: 'limit of the job call-api, closed', outcome: 'closed' },
      { action: 'limits.breaker', target: 'limit of the job call-api, open', outcome: 'opened' },
    ]);
  });

  it.each([
    [['set'], 'Pass a name: tidemill limits set <name>', 2],
    [['set', 'call-api'], 'Pass what to change', 2],
    [['set', 'call-api', '--concurrency', '0'], 'pause its name instead', 2],
    [['set', 'call-api', '--rate', '100'], '--rate must be such as 100/1m, or none; got "100"', 2],
    [['set', 'call-api', '--burst', '5'], '--burst belongs to --rate', 2],
    [['set', 'call-api', '--key-concurrency', 'many'], '--key-concurrency must be a whole number', 2],
    [['set', 'call-api', '--breaker', '20/1m'], '--breaker must be such as 20/1m/30s', 2],
    [['set', 'call-apy', '--concurrency', '1'], 'Did you mean "call-api"?', 2],
    [['--concurrency', '1'], 'tidemill limits set <name>', 2],
    [['breaker', 'call-api'], 'Pass open or closed', 2],
    [['breaker', 'erp-api', 'open'], 'has no breaker', 2],
    [['reset', 'call-apy'], 'There is no limit of the name "call-apy"', 3],
    [['sat', 'call-api'], 'Allowed choices are list, set, reset, keys, breaker', 2],
  ])('refuses %j with a hint', async (args, said, code) => {
    const ran = await run(args);
    expect(ran.err).toContain(said);
    expect([ran.code, ran.out]).toEqual([code, '']);
  });
});
