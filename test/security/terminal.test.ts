import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { jsonText } from '../../src/cli/render/text.js';
import { FatalError, Tidemill, type Job } from '../../src/index.js';
import { openStore } from '../../src/mill/opening/open-store.js';
import { until } from '../support/mills.js';
import { rawPool } from '../support/stores.js';
import { linesOf, tidemill } from '../cli/terminal.js';

/** A title, a cleared screen, a C1 sequence, and characters that reverse text or are invisible. */
const EVIL = '\u001B]0;pwned\u0007\u001B[2J\u009B31m\u202E\u200B\u2028\u007F';
const NAME = `bad${EVIL}name`;
/** Everything but line ends. */
const UNSEEN = /[\p{Cc}\p{Cf}\u2028\u2029]/u;

const schema = `test_${randomBytes(6).toString('hex')}`;
const pool = rawPool();

describe('untrusted text in the terminal', () => {
  let mill: Tidemill;
  let id: string;
  const flags = (): string[] => ['--store', inject('postgresUrl'), '--schema', schema];

  beforeAll(async () => {
    mill = new Tidemill({ store: await openStore(inject('postgresUrl'), { schema }), logger: false });
    mill.job(NAME, (job) => {
      job.log(`log${EVIL}line`, { field: EVIL });
      const error = new FatalError(`err${EVIL}or\nsecond line${EVIL}`);
      error.name = `N${EVIL}`;
      throw error;
    });
    await mill.start();
    id = (await mill.enqueue(NAME, { [`key${EVIL}`]: `value${EVIL}` }, { uniqueKey: `u${EVIL}` })).id;
    await until('it has failed', async () => (await mill.jobs.get(id))?.status === 'failed');
    await mill.jobs.pause(`paused${EVIL}`);
    await mill.audit.append({ actor: `a${EVIL}`, action: 'x', target: `one\ntwo${EVIL}`, outcome: EVIL });
  });
  afterAll(async () => {
    await mill.stop();
    await pool.query(`drop schema ${schema} cascade`);
  });

  it('no command prints control characters from stored text or arguments', async () => {
    for (const args of [
      ['ls'],
      ['ls', 'audit'],
      ['ls', 'instances'],
      ['show', id, '--stack'],
      ['show', `none${EVIL}`],
      ['stats'],
      ['doctor'],
      ['retry', id],
      ['cancel', id],
      ['pause', NAME],
      ['resume', NAME],
      ['run', NAME, '--wait', '20s'],
      ['retry', '--name', NAME, '--dry-run'],
      ['retry', '--error', EVIL],
      [`no${EVIL}such`],
      ['ls', `--no${EVIL}such`],
      ['ls', '--status', EVIL],
    ]) {
      for (const more of [[], ['--json']]) {
        const { out, err } = await tidemill([
          ...args,
          ...(args[0]?.startsWith('no') ? [] : flags()),
          ...more,
        ]);
        expect(out + err, JSON.stringify([...args, ...more])).not.toBe('');
        for (const line of `${out}\n${err}`.split('\n'))
          expect(UNSEEN.test(line), JSON.stringify([args, line])).toBe(false);
      }
    }
  });

  it('run --wait prints the failure of a job without control characters', async () => {
    const { code, err } = await tidemill(['run', NAME, '--wait', '20s', ...flags()]);
    expect(code).toBe(1);
    expect(err).toContain('second line');
    expect(UNSEEN.test(err.replaceAll('\n', ''))).toBe(false);
  });

  it('JSON output escapes control characters and parses to the same text', async () => {
    const [job] = linesOf<Job>(
      await tidemill(['ls', '--name', NAME, '--json', '--limit', '1', '--asc', ...flags()]),
    );
    expect(job).toMatchObject({ name: NAME, data: { [`key${EVIL}`]: `value${EVIL}` } });
    const all =
      Array.from({ length: 0x3000 }, (_, code) => String.fromCharCode(code)).join('') + '\u{E0001}\u{1D173}';
    expect(JSON.parse(jsonText({ all }))).toEqual({ all });
    expect(UNSEEN.test(jsonText({ all }))).toBe(false);
  });

  it('audit entries are single lines without control characters', async () => {
    const { items } = await mill.audit.list();
    for (const { actor, target, outcome } of items)
      for (const text of [actor, target, outcome]) expect(UNSEEN.test(text)).toBe(false);
    expect(items.map(({ target }) => target)).toContainEqual(expect.stringMatching(/^one two /u));
  });
});
