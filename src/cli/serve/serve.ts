import { createServer, type Server } from 'node:http';
import { createDashboard, toNodeHandler } from '../../dashboard/index.js';
import type { Tidemill } from '../../index.js';
import { actor } from '../audit.js';
import { CliError, Exit } from '../exit.js';
import { LoginGate } from './login-gate.js';

export interface ServeOptions {
  readonly mill: Tidemill;
  /** Undefined: 4747, or any free port if that is taken. */
  readonly port: number | undefined;
  readonly readOnly: boolean;
  /** Called when the link has let a browser in; there is a new link then. */
  readonly used?: () => void;
  /** Receives the errors of requests and of the server. */
  readonly onError: (error: unknown) => void;
}

export interface Served {
  /** Lets one browser in, once. */
  readonly link: string;
  close(): Promise<void>;
}

const USUAL_PORT = 4747;

/** Serves the dashboard on loopback, for the user of this terminal. */
export async function serveDashboard({
  mill,
  port,
  readOnly,
  used = () => undefined,
  onError,
}: ServeOptions): Promise<Served> {
  // Every caller that passes the gate is the user of this terminal, who may do everything.
  const granted = {
    rights: ['view', 'payload', 'act'] as const,
    actor: actor('dashboard'),
  };
  const server = createServer();
  const at = await listen(server, port);
  const gate = new LoginGate(at, used);
  const { basePath } = gate;
  const dashboard = createDashboard({ mill, readOnly, basePath, authorize: () => granted, onError });
  const answer = toNodeHandler(dashboard);
  // For example too many open files: the server may accept the next connection again.
  server.on('error', onError);
  server.on('request', (incoming, outgoing) => {
    try {
      const { method = 'GET', url = '/', headers } = incoming;
      const refused = gate.check({ method, url, host: headers.host, cookie: headers.cookie });
      if (refused === undefined) answer(incoming, outgoing);
      else outgoing.writeHead(refused.status, refused.headers).end(refused.body);
    } catch (error) {
      onError(error);
      if (outgoing.headersSent) outgoing.destroy();
      else outgoing.writeHead(500).end();
    }
  });
  return {
    get link() {
      return gate.link;
    },
    close: async () => {
      dashboard.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function listen(server: Server, port: number | undefined): Promise<number> {
  try {
    return await listenAt(server, port ?? USUAL_PORT);
  } catch (error) {
    if (port === undefined) return listenAt(server, 0);
    throw new CliError(
      Exit.FAILED,
      `Port ${String(port)} cannot be used: ${(error as Error).message}. Choose another with --port.`,
    );
  }
}

const listenAt = (server: Server, port: number): Promise<number> =>
  new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => {
      server.off('error', reject);
      const address = server.address();
      resolve(typeof address === 'object' && address !== null ? address.port : port);
    });
  });
