import { execFile, execFileSync } from 'node:child_process';
import { chown, cp, readFile, symlink } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { makeRunnable, postgresNative } from './binaries.js';
import { ServerError } from './errors.js';
import { inFreshFolder, removeFolder } from './folders.js';
import { freePort } from './ports.js';
import { ServerProcess, type ProcessSpec, type User } from './process.js';
import { stoppable, type Stoppable } from './stoppable.js';
import { until } from './until.js';

export interface PostgresOptions {
  /** Settings of the server, such as `{ max_connections: '30' }`. @default none */
  readonly settings?: Readonly<Record<string, string>>;
}

export interface PostgresServer extends Stoppable {
  readonly url: string;
  /** Signals the postmaster. SIGKILL ends it at once; its backends notice and end by themselves. */
  kill(signal: NodeJS.Signals): void;
  /** Ends it if it still runs. Resolves when it listens again, on the same port with the same data. */
  restart(): Promise<void>;
}

const run = promisify(execFile);

/** Starts a PostgreSQL with an empty database `postgres`, owned by a superuser of the same name without a password. */
export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const installed = await postgresNative();
  if (installed === undefined) {
    throw new ServerError(`Found no PostgreSQL for ${process.platform} ${process.arch}.`, {
      fix: '`npm run fetch`, or set POSTGRES_NATIVE to a folder with its bin, lib and share',
    });
  }
  await completeInstallation(installed);
  return inFreshFolder(async (folder) => {
    const user = await unprivilegedUser(folder);
    const native = await readableNative(installed, folder, user);
    const data = join(folder, 'data');
    await initialize(native, data, folder, user);
    return launch(await specOf(native, folder, user, options));
  });
}

type Spec = Omit<ProcessSpec, 'name'> & { readonly port: number };

async function specOf(
  native: string,
  folder: string,
  user: User | undefined,
  { settings = {} }: PostgresOptions,
): Promise<Spec> {
  const port = await freePort();
  const chosen = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  return {
    port,
    command: join(native, 'bin', 'postgres'),
    // The empty -k: no socket file.
    args: ['-D', join(folder, 'data'), '-p', `${port}`, '-h', '127.0.0.1', '-k', '', ...chosen],
    cwd: folder,
    logFile: join(folder, 'postgres.log'),
    ready: /ready to accept connections/,
    user,
    // As fast as SIGKILL, but it also ends the backends and frees the shared memory.
    endSignal: 'SIGQUIT',
  };
}

async function launch({ port, ...spec }: Spec): Promise<PostgresServer> {
  const start = (): Promise<ServerProcess> =>
    ServerProcess.launch({ name: `PostgreSQL on port ${port}`, ...spec });
  let server = await start();
  const running: Omit<PostgresServer, keyof Stoppable> = {
    url: `postgres://postgres@127.0.0.1:${port}/postgres`,
    kill: (signal) => {
      server.kill(signal);
    },
    restart: async () => {
      await server.end();
      // A backend that was busy when its postmaster was killed keeps the shared memory or the port until it notices.
      server = await until('PostgreSQL to start again', () =>
        start().catch((error: unknown) => {
          if (/in use/.test(String(error))) return undefined;
          throw error;
        }),
      );
    },
  };
  return stoppable(running, async () => {
    await server.end();
    await removeFolder(spec.cwd);
  });
}

async function initialize(native: string, data: string, cwd: string, user: User | undefined): Promise<void> {
  // With the C locale the log is in English, and the wait for the server matches its text.
  const args = ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync'];
  try {
    await run(join(native, 'bin', 'initdb'), args, { cwd, ...user });
  } catch (cause) {
    throw new ServerError('PostgreSQL could not make its data folder.', {
      why: (cause as { stderr?: string }).stderr || String(cause),
      fix: '`npm run fetch`, or set TMPDIR to a folder that every user can enter',
      cause,
    });
  }
}

/** npm may be configured to run no install scripts; the package's own script makes links that npm cannot pack. */
async function completeInstallation(native: string): Promise<void> {
  const list = await readFile(join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    const link = join(native, '..', target);
    await symlink(relative(dirname(target), source), link).catch((cause: unknown) => {
      if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') throw unfinished(cause);
    });
  }
  await Promise.all(['initdb', 'postgres'].map((program) => makeRunnable(join(native, 'bin', program))));
}

function unfinished(cause: unknown): ServerError {
  return new ServerError('The PostgreSQL package lacks links to its libraries.', {
    why: String(cause),
    fix: '`npm run fetch` as the user who owns servers/binaries',
    cause,
  });
}

/** PostgreSQL refuses to run as root. `nobody` exists everywhere; initdb does not accept a uid without a name. */
async function unprivilegedUser(folder: string): Promise<User | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const id = (flag: string): number => Number(execFileSync('id', [flag, 'nobody'], { encoding: 'utf8' }));
  const user = { uid: id('-u'), gid: id('-g') };
  await chown(folder, user.uid, user.gid);
  return user;
}

/** A checkout under root's home is not readable for `nobody`, who then gets a copy. */
async function readableNative(native: string, folder: string, user: User | undefined): Promise<string> {
  if (user === undefined) return native;
  try {
    await run(join(native, 'bin', 'postgres'), ['--version'], { cwd: folder, ...user });
    return native;
  } catch {
    const copy = join(folder, 'native');
    await cp(native, copy, { recursive: true, verbatimSymlinks: true });
    return copy;
  }
}
