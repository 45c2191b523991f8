import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { describe, expect, inject, it } from 'vitest';
import { rawClient, rawPool } from '../support/stores.js';

const root = resolve(import.meta.dirname, '../..');
const pool = rawPool();
const client = rawClient(inject('mongoUri'));

/** Runs the demo until it has done some work and presses Ctrl-C then; answers all that it wrote, and its exit code. */
async function demo(store: string): Promise<{ text: string; code: unknown }> {
  const args = ['--import', 'tsx', 'examples/demo/main.ts', '--store', store];
  const child = spawn(process.execPath, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  let pressed = false;
  const read = (data: Buffer): void => {
    text += data.toString();
    if (pressed || !/done [1-9]/u.test(text)) return;
    pressed = true;
    child.kill('SIGINT');
  };
  child.stdout.on('data', read);
  child.stderr.on('data', read);
  const [code] = (await once(child, 'close')) as [unknown];
  return { text, code };
}

describe('the demo', { timeout: 120_000 }, () => {
  it.each(['embedded', 'memory'])('works in one process on the %s store, and says so', async (store) => {
    const { text, code } = await demo(store);
    expect(text).toContain('parts of this one process');
    expect(text).toMatch(/Stopped after \d+ s: [1-9]/u);
    expect(code, text).toBe(0);
  });

  it('works in processes on a PostgreSQL server, and takes its schema away', async () => {
    const { text, code } = await demo(inject('postgresUrl'));
    expect(text).toContain('each a process of its own');
    expect(text).toMatch(/Stopped after \d+ s: [1-9]/u);
    expect(code, text).toBe(0);
    const schemas = `select nspname from pg_namespace where nspname like 'tidemill\\_demo%'`;
    expect((await pool.query(schemas)).rows).toEqual([]);
  });

  it('works in processes on a MongoDB server, and takes its database away', async () => {
    const { text, code } = await demo(inject('mongoUri'));
    expect(text).toContain('each a process of its own');
    expect(text).toMatch(/Stopped after \d+ s: [1-9]/u);
    expect(code, text).toBe(0);
    const { databases } = await client.db().admin().listDatabases({ nameOnly: true });
    expect(databases.filter(({ name }) => name.startsWith('tidemill_demo'))).toEqual([]);
  });

  it('names the choices where it is given an unknown one', async () => {
    const { text, code } = await demo('redis://localhost');
    expect(text).toContain('STORE: embedded (the default), postgres, mongodb');
    expect(code).toBe(2);
  });

  it('says which server does not answer, and what to do', async () => {
    const { text, code } = await demo('postgres://127.0.0.1:1/nobody');
    expect(text).toContain('PostgreSQL does not answer');
    expect(text).toContain('To fix it: start the server that the URL names');
    expect(code).toBe(1);
  });
});
