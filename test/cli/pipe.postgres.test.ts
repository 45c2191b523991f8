import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect, inject, it } from 'vitest';
import { aMill } from '../support/mills.js';
import { freshSchema, freshPostgres } from '../support/stores.js';

const main = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));

/** Runs the command line in a real pipe, and writes its exit code to stderr. */
async function piped(args: readonly string[], reader: string): Promise<{ out: string; err: string }> {
  const script = `{ "$@"; echo "exit $?" >&2; } | ${reader}`;
  const child = spawn('sh', ['-c', script, 'sh', process.execPath, '--import', 'tsx', main, ...args]);
  const read = { out: '', err: '' };
  child.stdout.on('data', (data: Buffer) => (read.out += data.toString()));
  child.stderr.on('data', (data: Buffer) => (read.err += data.toString()));
  await once(child, 'close');
  return read;
}

it('ends quietly with 141 when the reader of its output ends first', async () => {
  const schema = freshSchema();
  const mill = aMill(freshPostgres({ schema }));
  // Far more than a pipe holds, so that the command still writes when its reader is gone.
  const data = Array.from({ length: 20_000 }, (_, line) => `line ${String(line)}`);
  const { id } = await mill.enqueue('mail', data);
  const args = ['show', id, '--store', inject('postgresUrl'), '--schema', schema];
  expect(await piped(args, 'head -n 1')).toEqual({ out: 'mail  pending\n', err: 'exit 141\n' });
  const whole = await piped(args, 'tail -n 2');
  expect(whole).toEqual({ out: '    "line 19999"\n  ]\n', err: 'exit 0\n' });
});
