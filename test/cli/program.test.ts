import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, inject, it } from 'vitest';
import { hider, safeUrl } from '../../src/cli/secrets.js';
import { relative, span } from '../../src/cli/render/time.js';
import { table } from '../../src/cli/render/table.js';
import { rawClient, rawPool } from '../support/stores.js';
import { tidemill } from './terminal.js';

const folder = mkdtempSync(join(tmpdir(), 'tidemill-cli-'));
afterAll(() => rmSync(folder, { recursive: true }));
const pool = rawPool();
const client = rawClient(inject('mongoUri'));
const escape = '\u001B';

describe('the command line', () => {
  it('prints an overview when called without a command', async () => {
    const { code, out } = await tidemill([]);
    expect(code).toBe(0);
    expect(out).toContain('tidemill doctor');
    expect(out).toContain('Exit codes: 0');
  });

  it('has help with examples for every command', async () => {
    const { out } = await tidemill(['--help']);
    const commands = [...out.matchAll(/^ {2}([a-z][a-z-]+)(?: |$)/gmu)]
      .map(([, name]) => name!)
      .filter((name) => name !== 'tidemill');
    expect(commands).toContain('doctor');
    for (const command of new Set(commands)) {
      const help = await tidemill([command, '--help']);
      expect(help.code).toBe(0);
      expect(help.out, command).toContain('Examples:\n  ');
    }
  });

  it.each([
    [['docter'], 'Did you mean doctor?'],
    [['doctor', '--stroe', 'x'], 'Did you mean --store?'],
    [['doctor'], 'Pass --store, or set TIDEMILL_STORE'],
    [['doctor', '--store', 'redis://localhost'], '--store must be mongodb://host/db'],
    [['doctor', '--store', 'memory:'], 'lives inside one process'],
    [['bench', '--store', 'memory:', '--jobs', 'many'], '--jobs must be a whole number'],
    [['demo', '--store', 'redis://localhost'], '--store must be embedded (the default), postgres://…'],
    [['demo', '--store', 'memory:'], 'The memory store cannot watch data for changes'],
    [['demo', '--seconds', 'soon'], '--seconds must be a number above 0'],
    [['dashboard', '--store', 'file:./x', '--port', '99999'], '--port must be a whole number'],
    [['completion', 'tcsh'], 'Allowed choices are bash, zsh, fish'],
  ])('rejects the arguments %j with a hint and exit code 2', async (args, said) => {
    const { code, out, err } = await tidemill(args);
    expect(err).toContain(said);
    expect({ code, out }).toEqual({ code: 2, out: '' });
  });

  it('writes a starter into an empty folder, and into another one only by force', async () => {
    const place = join(folder, 'My App');
    const first = await tidemill(['init', place]);
    expect(first.code, first.err).toBe(0);
    for (const part of ['Wrote 8 files', 'src/jobs/send-email.ts', 'npm install', `My App'`])
      expect(first.out).toContain(part);
    const read = (path: string): string => readFileSync(join(place, path), 'utf8');
    expect(JSON.parse(read('package.json'))).toMatchObject({
      name: 'my-app',
      dependencies: { '@electric-sql/pglite': expect.any(String) as string },
    });
    const again = await tidemill(['init', place, '--store', 'mongodb']);
    expect(again.code).toBe(2);
    expect(again.err).toMatch(/is not empty: it has .* and 5 more\. Name an empty folder, or pass --force/u);
    expect(read('src/mill.ts')).toContain('file:./data');
    expect((await tidemill(['init', place, '--store', 'mongodb', '--force'])).code).toBe(0);
    expect(read('src/mill.ts')).toContain('mongodb://');
    expect((await tidemill(['init', place, '--store', 'redis'])).err).toContain(
      'Allowed choices are embedded, postgres, mongodb',
    );
  });

  it('names the server that the demo cannot reach, and how to fix it', async () => {
    const { code, err } = await tidemill(['demo', '--store', 'postgres://127.0.0.1:1/nobody']);
    expect(err).toContain('PostgreSQL does not respond');
    expect(err).toContain('Start the server that the URL names');
    expect(code).toBe(1);
  });

  it('takes the store from the environment variable TIDEMILL_STORE', async () => {
    const { code, err } = await tidemill(['doctor'], { env: { TIDEMILL_STORE: `file:${folder}/none` } });
    expect(err).toContain('contains no database');
    expect(code).toBe(1);
  });

  it('never prints credentials from a store URL', async () => {
    const urls = [
      'postgres://ada:s3cr%40t@127.0.0.1:1/app?sslpassword=pw99',
      'mongodb://ada:s3cr%40t@127.0.0.1:1/app?serverSelectionTimeoutMS=300&tlsCertificateKeyFilePassword=pw99',
      'mongodb://ada:s3cr@t@127.0.0.1:notaport/app',
      'postgres:/ada:s3cr@t@127.0.0.1/app',
    ];
    for (const url of urls) {
      for (const args of [
        ['doctor', '--store', url],
        ['doctor', '--json', '--store', url],
        ['doctor', `--stroe=${url}`],
      ]) {
        const { out, err } = await tidemill(args);
        expect(out + err).not.toMatch(/ada|s3cr|pw99/u);
        expect(out + err).not.toBe('');
      }
    }
  });

  it('shows only protocol, hosts and database of a store URL', () => {
    expect(safeUrl('mongodb://u:p@h1:1,h2:2/app?replicaSet=rs0&authSource=x')).toBe(
      'mongodb://h1:1,h2:2/app',
    );
    expect(safeUrl('postgres://u@h/app')).toBe('postgres://h/app');
    expect(safeUrl('file:./data')).toBe('file:./data');
  });

  it('removes users and secrets from driver messages', () => {
    const hide = hider(['postgres://ada:p%20w@host/app?token=abc123']);
    expect(hide('password authentication failed for user "ada" (p w, p%20w, abc123)')).toBe(
      'password authentication failed for user "***" (***, ***, ***)',
    );
    expect(hide('cannot reach postgres://eve:x@other/app')).toBe('cannot reach postgres://other/app');
  });

  it('uses colors on a terminal, but not in a pipe, with NO_COLOR or with --no-color', async () => {
    const args = ['doctor', '--store', 'postgres://127.0.0.1:1/nobody'];
    expect((await tidemill(args, { columns: 80 })).out).toContain(escape);
    expect((await tidemill(args)).out).not.toContain(escape);
    expect((await tidemill(args, { columns: 80, env: { NO_COLOR: '1' } })).out).not.toContain(escape);
    expect((await tidemill([...args, '--no-color'], { columns: 80 })).out).not.toContain(escape);
  });

  it('strips control characters from stored text before printing it', () => {
    const rows = [{ text: `a${escape}[2Jb\r\nc\u202Ed` }];
    const drawn = table([{ head: 'TEXT', text: (row) => row.text }], rows, (_style, text) => text, undefined);
    expect(drawn).toBe('TEXT\na [2Jb c d');
  });

  it('prints durations with at most two units', () => {
    expect([span(12), span(61_000), span(3_600_000), span(90_061_000)]).toEqual([
      '12ms',
      '1m 1s',
      '1h',
      '1d 1h',
    ]);
    expect([
      relative(new Date(5_000), 0),
      relative(new Date(0), 7_200_000),
      relative(new Date(10), 0),
    ]).toEqual(['in 5s', '2h ago', 'now']);
  });

  it.each(['bash', 'zsh', 'fish'])('generates %s completions for commands and options', async (shell) => {
    const { out, code } = await tidemill(['completion', shell]);
    expect(code).toBe(0);
    expect(out).toContain('doctor');
    expect(out).toContain(shell === 'fish' ? '-l store' : '--store');
    if (spawnSync(shell, ['--version']).error !== undefined) return;
    expect(spawnSync(shell, ['-n'], { input: out, encoding: 'utf8' }).stderr).toBe('');
  });

  it('benchmarks the memory store and explains the figures', async () => {
    const { out, code } = await tidemill(['bench', '--store', 'memory:', '--jobs', '300']);
    expect(code).toBe(0);
    expect(out).toContain('from enqueue to handler');
    expect(out).toContain('WHAT IT MEANS');
  });

  it('benchmarks a database only after confirmation, and leaves nothing behind', async () => {
    const args = ['bench', '--store', inject('postgresUrl'), '--jobs', '50'];
    const refused = await tidemill(args);
    expect(refused.err).toContain('pass --yes');
    expect(refused.code).toBe(2);
    expect((await tidemill(args, { answers: ['n'] })).code).toBe(1);
    for (const store of [inject('postgresUrl'), inject('mongoUri').replace('/?', '/test_bench?')]) {
      const { out, code, err } = await tidemill([
        'bench',
        '--store',
        store,
        '--jobs',
        '50',
        '--yes',
        '--json',
      ]);
      expect(code, err).toBe(0);
      const { measures } = JSON.parse(out) as { measures: { perSecond?: number }[] };
      expect(measures).toHaveLength(5);
    }
    const left = await pool.query(`select nspname from pg_namespace where nspname like 'tidemill\\_bench%'`);
    expect(left.rows).toEqual([]);
    expect(await client.db('test_bench').listCollections().toArray()).toEqual([]);
  });
});
