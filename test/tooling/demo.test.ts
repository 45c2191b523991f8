import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { describe, expect, inject, it } from 'vitest';
import { rawClient, rawPool } from '../support/stores.js';

const root = resolve(import.meta.dirname, '../..');
const pool = rawPool();
const client = rawClient(inject('mongoUri'));

/** Work of each kind is done: a job, a task on data that changed, and a document that was due. */
const ALL_KINDS = /send-email [1-9].*ship-order [1-9].*send-digest [1-9]/u;
const LINK = /http:\/\/127\.0\.0\.1:\d+\/\?token=\S+/u;

interface Ran {
  readonly text: string;
  readonly code: unknown;
  /** What the dashboard answered while the demo ran. */
  readonly session?: unknown;
}

/** Runs the demo until it has done work of each kind, then presses Ctrl-C; returns its output and its exit code. */
async function demo(store: string): Promise<Ran> {
  const args = ['--import', 'tsx', 'examples/demo/main.ts', '--store', store, '--port', '0'];
  const child = spawn(process.execPath, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  let session: Promise<unknown> | undefined;
  const read = (data: Buffer): void => {
    text += data.toString();
    if (session !== undefined || !ALL_KINDS.test(text)) return;
    session = visit(LINK.exec(text)?.[0] ?? '').finally(() => child.kill('SIGINT'));
  };
  child.stdout.on('data', read);
  child.stderr.on('data', read);
  const [code] = (await once(child, 'close')) as [unknown];
  return { text, code, session: await session };
}

/** What a browser does with the link. */
async function visit(link: string): Promise<unknown> {
  const opened = await fetch(link);
  const [cookie = '', path = ''] = (opened.headers.getSetCookie()[0] ?? '').split(/; (?:Path=)?/u);
  return (await fetch(new URL(`${path}/api/session`, link), { headers: { cookie } })).json();
}

describe('the demo', () => {
  it('the demo runs all three kinds of work in one process, and shows them on the dashboard', async () => {
    const { text, code, session } = await demo('embedded');
    expect(text).toContain('all in this process');
    expect(text).toMatch(/Stopped after \d+ s: [1-9]/u);
    expect(session).toMatchObject({ store: 'embedded', kinds: ['jobs', 'tasks', 'documents'] });
    expect(code, text).toBe(0);
  });

  it('the demo runs in processes on a PostgreSQL server, and removes its schemas', async () => {
    const { text, code } = await demo(inject('postgresUrl'));
    expect(text).toContain('each in its own process');
    expect(text).toMatch(/Stopped after \d+ s: [1-9]/u);
    expect(code, text).toBe(0);
    const schemas = `select nspname from pg_namespace where nspname like 'tidemill\\_demo%'`;
    expect((await pool.query(schemas)).rows).toEqual([]);
  });

  it('the demo runs in processes on a MongoDB server, and removes its database', async () => {
    const { text, code } = await demo(inject('mongoUri'));
    expect(text).toContain('each in its own process');
    expect(text).toMatch(/Stopped after \d+ s: [1-9]/u);
    expect(code, text).toBe(0);
    const { databases } = await client.db().admin().listDatabases({ nameOnly: true });
    expect(databases.filter(({ name }) => name.startsWith('tidemill_demo'))).toEqual([]);
  });
});
