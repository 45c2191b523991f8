import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { Tidemill } from '../../src/index.js';
import { eventsOf } from '../dashboard/client.js';
import { until } from '../support/mills.js';
import { freshUri } from '../support/stores.js';

const root = resolve(import.meta.dirname, '../..');
const folder = join(root, 'examples/frameworks');

const PASSWORD = 'correct horse';
const basic = (password: string): { authorization: string } => ({
  authorization: `Basic ${Buffer.from(`ops:${password}`).toString('base64')}`,
});

interface Running {
  readonly child: ChildProcess;
  readonly said: () => string;
}

const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

function start(file: string, env: NodeJS.ProcessEnv): Running {
  const child = spawn(process.execPath, ['--import', 'tsx', join(folder, file)], {
    cwd: root,
    env: { ...process.env, PORT: '0', DASHBOARD_PASSWORD: PASSWORD, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.push(child);
  let said = '';
  child.stdout.on('data', (chunk: Buffer) => (said += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
  return { child, said: () => said };
}

/** Returns the address that the program prints once it listens. */
const addressOf = ({ child, said }: Running): Promise<string> =>
  until(
    () => `it serves; it said: ${said()}`,
    () => {
      if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}: ${said()}`);
      return /http:\/\/localhost:\d+/u.exec(said())?.[0].replace('localhost', '127.0.0.1');
    },
  );

/** Sends SIGTERM, and returns how the program ended: its exit code, and its signal. */
async function terminate({ child }: Running): Promise<unknown[]> {
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  return ended;
}

interface State {
  readonly status: string;
  readonly result?: string;
}

async function enqueue(base: string, body: unknown): Promise<Response> {
  return fetch(`${base}/emails`, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { 'content-type': 'application/json' },
  });
}

const idOf = async (answer: Response): Promise<string> => ((await answer.json()) as { id: string }).id;

/** Waits until a job has this status, by the route that shows it. */
const reached = (status: string, show: () => Promise<Response>): Promise<State> =>
  until(`the job is ${status}`, async () => {
    const state = (await (await show()).json()) as State;
    return state.status === status && state;
  });

const EMAIL = { to: 'ada@example.com', subject: 'Welcome' };
const SENT = 'sent "Welcome" to ada@example.com';

async function checkRoutes(base: string): Promise<void> {
  expect((await enqueue(base, { to: 'ada@example.com' })).status).toBe(400);
  expect((await fetch(`${base}/emails/none`)).status).toBe(404);
  const answer = await enqueue(base, EMAIL);
  expect(answer.status).toBe(202);
  const id = await idOf(answer);
  const { result } = await reached('completed', () => fetch(`${base}/emails/${id}`));
  expect(result).toBe(SENT);
}

/** Returns the events of a live page. */
async function checkDashboard(base: string): Promise<ReturnType<typeof eventsOf>> {
  const open = async (path: string, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${base}/tidemill${path}`, { headers });
  const denied = await open('');
  expect(denied.status).toBe(401);
  expect(denied.headers.get('www-authenticate')).toContain('Basic');
  expect((await open('', basic('a guess'))).status).toBe(401);
  expect(await (await open('', basic(PASSWORD))).text()).toContain('<base href="/tidemill/">');
  const session = await open('/api/session', basic(PASSWORD));
  expect(await session.json()).toMatchObject({ rights: ['view', 'payload', 'act'] });
  const live = await open(`/api/live?path=${encodeURIComponent('work?kind=jobs')}`, basic(PASSWORD));
  return eventsOf(live);
}

/** Nest ends its process with the signal that it received, once it has closed everything. */
const ENDS: Readonly<Record<string, unknown[]>> = { nestjs: [null, 'SIGTERM'] };

describe.each(['express', 'fastify', 'hono', 'nestjs'])('the example for %s', (name) => {
  const clean = ENDS[name] ?? [0, null];

  it(`the example for ${name} enqueues, works, shows its dashboard, and lets a running job end at SIGTERM`, async () => {
    // Express runs on the embedded store, which is the default of the examples.
    const dir = await mkdtemp(join(tmpdir(), 'tidemill-framework-'));
    const store = name === 'express' ? `file:${join(dir, 'data')}` : freshUri();
    const program = start(`${name}/main.ts`, { DATABASE_URL: store });
    const base = await addressOf(program);
    await checkRoutes(base);
    const page = await checkDashboard(base);
    expect(await page.next()).toContain('send-email');
    const id = await idOf(await enqueue(base, EMAIL));
    await reached('processing', () => fetch(`${base}/emails/${id}`));

    expect(await terminate(program), program.said()).toEqual(clean);
    await until('the live page has ended', async () => (await page.next()) === undefined);
    await using mill = new Tidemill({ store, logger: false });
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed', result: SENT, failCount: 0 });
    expect(await mill.instances()).toEqual([]);
    await mill.stop();
    await rm(dir, { recursive: true });
  });

  it(`the example for ${name} enqueues for a worker in another process`, async () => {
    const env = { DATABASE_URL: freshUri(), WORKER: 'apart' };
    const programs = [start(`${name}/main.ts`, env), start(`${name}/worker.ts`, env)] as const;
    const base = await addressOf(programs[0]);
    const id = await idOf(await enqueue(base, EMAIL));
    await reached('completed', () => fetch(`${base}/emails/${id}`));
    await using mill = new Tidemill({ store: env.DATABASE_URL, logger: false });
    expect((await mill.instances()).map(({ pid }) => pid)).toEqual([programs[1].child.pid]);
    expect(await Promise.all(programs.map(terminate))).toEqual([clean, clean]);
  });
});

describe('the example for Next.js', () => {
  type Route = Record<'GET' | 'POST', (request: Request, context?: unknown) => Promise<Response>>;
  type Kept = typeof globalThis & { mill?: Tidemill };

  afterEach(async () => {
    vi.unstubAllEnvs();
    vi.restoreAllMocks();
    await (globalThis as Kept).mill?.stop();
    delete (globalThis as Kept).mill;
  });

  /** Loads a file as a new bundle, as the dev server does after a change. */
  async function load<T>(file: string): Promise<T> {
    vi.resetModules();
    return (await import(join(folder, 'nextjs', file))) as T;
  }

  /** Calls the route handlers as Next.js does. */
  async function serve(): Promise<(path: string, init?: RequestInit) => Promise<Response>> {
    const emails = await load<Route>('app/api/emails/route.ts');
    const email = await load<Route>('app/api/emails/[id]/route.ts');
    const dashboard = await load<Route>('app/tidemill/[[...path]]/route.ts');
    return (path, init) => {
      const request = new Request(`http://localhost:3000${path}`, init);
      if (path.startsWith('/tidemill')) return dashboard.GET(request);
      const id = /^\/api\/emails\/(?<id>.+)$/u.exec(path)?.groups?.['id'];
      return id === undefined
        ? emails.POST(request)
        : email.GET(request, { params: Promise.resolve({ id }) });
    };
  }

  const post = (body: unknown): RequestInit => ({ method: 'POST', body: JSON.stringify(body) });

  it('the example for Next.js enqueues in a route, works in the process that instrumentation.ts prepared, and stops at SIGTERM', async () => {
    vi.stubEnv('DATABASE_URL', 'memory:');
    vi.stubEnv('DASHBOARD_PASSWORD', PASSWORD);
    vi.stubEnv('NEXT_RUNTIME', 'nodejs');
    const once = vi.spyOn(process, 'once').mockReturnThis();
    await (await load<{ register: () => Promise<void> }>('instrumentation.ts')).register();
    const ask = await serve();
    expect((await ask('/api/emails', post({ to: 1 }))).status).toBe(400);
    expect((await ask('/api/emails/none')).status).toBe(404);
    const id = await idOf(await ask('/api/emails', post(EMAIL)));
    expect((await reached('completed', () => ask(`/api/emails/${id}`))).result).toBe(SENT);
    expect((await ask('/tidemill')).status).toBe(401);
    const page = await ask('/tidemill', { headers: basic(PASSWORD) });
    expect(await page.text()).toContain('<base href="/tidemill/">');

    const { mill } = globalThis as Kept;
    const [, stop] = once.mock.calls.find(([signal]) => signal === 'SIGTERM') ?? [];
    stop?.();
    await until('the mill has stopped', () => mill?.started === false);
  });

  it('the example for Next.js has one mill per process, however often its modules are loaded', async () => {
    vi.stubEnv('DATABASE_URL', 'memory:');
    const first = await load<{ mill: Tidemill }>('lib/mill.ts');
    const second = await load<{ mill: Tidemill }>('lib/mill.ts');
    expect(second).not.toBe(first);
    expect(second.mill).toBe(first.mill);
  });

  it('the example for Next.js only enqueues where the worker is another process, and nothing runs at the edge', async () => {
    const env = { DATABASE_URL: freshUri(), WORKER: 'apart' };
    for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
    vi.spyOn(process, 'once').mockReturnThis();
    const { register } = await load<{ register: () => Promise<void> }>('instrumentation.ts');
    vi.stubEnv('NEXT_RUNTIME', 'edge');
    await register();
    expect((globalThis as Kept).mill).toBeUndefined();
    vi.stubEnv('NEXT_RUNTIME', 'nodejs');
    await register();
    const ask = await serve();
    const worker = start('nextjs/worker.ts', env);
    const id = await idOf(await ask('/api/emails', post(EMAIL)));
    await reached('completed', () => ask(`/api/emails/${id}`));
    expect((globalThis as Kept).mill?.started).toBe(false);
    expect(await terminate(worker)).toEqual([0, null]);
  });
});

it('the files that no framework changes are the same in each example', async () => {
  const read = (file: string): Promise<string> => readFile(join(folder, file), 'utf8');
  for (const file of ['jobs.ts', 'mill.ts', 'handlers.ts', 'dashboard.ts', 'worker.ts'])
    for (const name of ['fastify', 'hono'])
      expect(await read(`${name}/${file}`)).toBe(await read(`express/${file}`));
  expect(await read('nestjs/jobs.ts')).toBe(await read('express/jobs.ts'));
  // Next.js imports by its own alias.
  for (const file of ['jobs.ts', 'dashboard.ts'])
    expect((await read(`nextjs/lib/${file}`)).replace('@/lib/mill', './mill.js')).toBe(
      await read(`express/${file}`),
    );
});
