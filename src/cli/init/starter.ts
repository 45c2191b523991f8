/** The files that `tidemill init` writes: a worker with one job, its dashboard, and a test. */

export const STARTER_STORES = ['embedded', 'postgres', 'mongodb'] as const;
export type StarterStore = (typeof STARTER_STORES)[number];

export interface StarterOptions {
  /** The name of the new package. */
  readonly name: string;
  readonly store: StarterStore;
  /** The version of Tidemill that it depends on. */
  readonly version: string;
}

interface StoreParts {
  readonly driver: Readonly<Record<string, string>>;
  /** The expression of the store in `src/mill.ts`. */
  readonly expression: string;
  /** Where the data is, for the README. */
  readonly about: string;
}

const STORES: Readonly<Record<StarterStore, StoreParts>> = {
  embedded: {
    driver: { '@electric-sql/pglite': '^0.5.0' },
    expression: "process.env['DATABASE_URL'] ?? 'file:./data'",
    about:
      'The jobs are in the folder `data`, in a PostgreSQL inside the process (PGlite). One process at a time can open it; for several, set `DATABASE_URL` to `postgres://…` and install `pg`.',
  },
  postgres: {
    driver: { pg: '^8.15.0' },
    expression: "process.env['DATABASE_URL'] ?? 'postgres://localhost:5432/postgres'",
    about:
      'The jobs are in the schema `tidemill` of your PostgreSQL database. Set `DATABASE_URL`; the default is `postgres://localhost:5432/postgres`.',
  },
  mongodb: {
    driver: { mongodb: '^7.0.0' },
    expression: "process.env['MONGODB_URI'] ?? 'mongodb://localhost:27017/app'",
    about:
      'The jobs are in your MongoDB database. Set `MONGODB_URI`; the default is `mongodb://localhost:27017/app`. On a replica set new jobs start at once; a standalone server is polled.',
  },
};

const json = (value: unknown): string => `${JSON.stringify(value, undefined, 2)}\n`;

const packageJson = ({ name, store, version }: StarterOptions): string =>
  json({
    name,
    version: '0.0.0',
    private: true,
    type: 'module',
    engines: { node: '>=20.19' },
    scripts: {
      start: 'node --import tsx src/main.ts',
      test: 'node --import tsx --test test/*.test.ts',
      types: 'tsc',
    },
    dependencies: { ...STORES[store].driver, tidemill: `^${version}` },
    devDependencies: { '@types/node': '^20.19.0', tsx: '^4.20.0', typescript: '^5.9.0' },
  });

const TSCONFIG = json({
  compilerOptions: {
    target: 'es2022',
    lib: ['es2023', 'esnext.disposable'],
    module: 'nodenext',
    types: ['node'],
    strict: true,
    noUncheckedIndexedAccess: true,
    verbatimModuleSyntax: true,
    skipLibCheck: true,
    noEmit: true,
  },
  include: ['src', 'test'],
});

const millTs = ({ store }: StarterOptions): string => `import { Tidemill } from 'tidemill';

export const mill = new Tidemill({
  store: ${STORES[store].expression},
});
`;

const SEND_EMAIL = `import { defineJob, type JobContext } from 'tidemill';

export interface Email {
  readonly to: string;
  readonly subject: string;
}

/** What producers and workers share: the name, the options and the type of the payload. */
export const sendEmail = defineJob<Email>('send-email', {
  retryPolicy: { type: 'exponential', min: '1s', max: '10m', maxAttempts: 5 },
  timeout: '1m',
});

/** Runs in the worker. A handler that throws is retried, so make it safe to repeat. */
export async function handleSendEmail({ data, log, signal }: JobContext<Email>): Promise<string> {
  signal.throwIfAborted();
  log('sending', { to: data.to });
  // Replace this line with a call of your mail provider.
  return \`sent "\${data.subject}" to \${data.to}\`;
}
`;

const MAIN = `import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createDashboard, toNodeHandler } from 'tidemill/dashboard';
import { handleSendEmail, sendEmail } from './jobs/send-email.js';
import { mill } from './mill.js';

// The worker.
mill.work(sendEmail, { concurrency: 10 }, handleSendEmail);
await mill.start();

// The dashboard. This server listens on this machine only, so everyone who reaches it may do everything.
// Check your own sessions in \`authorize\` before you let others reach it.
const dashboard = createDashboard({
  mill,
  basePath: '/tidemill',
  authorize: (request) => (isLocal(new URL(request.url)) ? ['view', 'payload', 'act'] : null),
});
const showDashboard = toNodeHandler(dashboard);

function isLocal({ hostname }: URL): boolean {
  return ['localhost', '127.0.0.1'].includes(hostname);
}

// The producer: POST /emails?to=ada@example.com
async function enqueueEmail(url: URL, response: ServerResponse): Promise<void> {
  const to = url.searchParams.get('to') ?? 'ada@example.com';
  const { id } = await mill.enqueue(sendEmail, { to, subject: 'Welcome' });
  response.writeHead(202, { 'content-type': 'application/json' }).end(JSON.stringify({ id }));
}

function handle(request: IncomingMessage, response: ServerResponse): void {
  const url = new URL(request.url ?? '/', 'http://localhost');
  if (url.pathname === '/tidemill' || url.pathname.startsWith('/tidemill/')) {
    showDashboard(request, response);
  } else if (request.method === 'POST' && url.pathname === '/emails') {
    enqueueEmail(url, response).catch((error: unknown) => {
      console.error(error);
      response.writeHead(500).end();
    });
  } else {
    response.writeHead(404).end();
  }
}

const server = createServer(handle);
server.listen(Number(process.env['PORT'] ?? 3000), '127.0.0.1');
await once(server, 'listening');
const { port } = server.address() as AddressInfo;
console.log(\`Dashboard: http://localhost:\${port}/tidemill\`);
console.log(\`Enqueue a job: curl -X POST 'http://localhost:\${port}/emails?to=ada@example.com'\`);

// HTTP ends first: requests that are still being answered may enqueue. Then the mill.
async function stop(): Promise<void> {
  const closed = once(server, 'close');
  server.close();
  dashboard.close(); // live pages
  setTimeout(() => server.closeAllConnections(), 10_000).unref();
  await closed;
  await mill.stop();
}
process.once('SIGINT', () => void stop());
process.once('SIGTERM', () => void stop());
`;

const TEST = `import assert from 'node:assert/strict';
import { test } from 'node:test';
import { testMill } from 'tidemill/testing';
import { handleSendEmail, sendEmail } from '../src/jobs/send-email.js';

test('sends an email', async () => {
  const mill = testMill();
  mill.work(sendEmail, handleSendEmail);

  const { id } = await mill.enqueue(sendEmail, { to: 'ada@example.com', subject: 'Welcome' });
  await mill.drain();

  assert.equal(await mill.jobs.result(id), 'sent "Welcome" to ada@example.com');
  await mill.stop();
});
`;

const readme = ({ name, store }: StarterOptions): string => `# ${name}

Background jobs with Tidemill.

\`\`\`sh
npm install
npm test
npm start
\`\`\`

\`npm start\` runs the worker and serves the dashboard at http://localhost:3000/tidemill. Enqueue a job:

\`\`\`sh
curl -X POST 'http://localhost:3000/emails?to=ada@example.com'
\`\`\`

${STORES[store].about}

| file | what it has |
|---|---|
| \`src/jobs/send-email.ts\` | a job: its definition and its handler |
| \`src/mill.ts\` | the store |
| \`src/main.ts\` | the worker, the dashboard, an HTTP route that enqueues, and a clean shutdown |
| \`test/send-email.test.ts\` | a test without a database |
`;

/** Returns the files by path, in the order in which they are listed. */
export const starterFiles = (options: StarterOptions): Readonly<Record<string, string>> => ({
  'package.json': packageJson(options),
  'tsconfig.json': TSCONFIG,
  '.gitignore': 'node_modules/\ndata/\n',
  'README.md': readme(options),
  'src/mill.ts': millTs(options),
  'src/jobs/send-email.ts': SEND_EMAIL,
  'src/main.ts': MAIN,
  'test/send-email.test.ts': TEST,
});
