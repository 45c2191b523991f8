import { connect, createServer, type Server, type Socket } from 'node:net';
import { inject } from 'vitest';
import { cleanUpAfterAll } from './cleanup.js';
import { freshUri } from './stores.js';

/** One connection through the proxy. */
interface Joint {
  frozen: boolean;
  /** It has carried a statement on one of our collections or tables. */
  works: boolean;
}

/**
 * Stands between a driver and a server, and loses responses on demand, as a real network does: the request arrives, is
 * carried out, and the connection breaks before the response.
 */
export class FlakyProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** How many of the next responses are lost; Infinity cuts the server off. */
  lose = 0;
  /** Called with each request; true loses its response. */
  picky: ((request: Buffer) => boolean) | undefined;
  lost = 0;
  /** The bytes of all responses on connections that carry statements. */
  received = 0;
  /** The bytes of all requests on them. */
  sent = 0;
  readonly #joined = new Set<Joint>();

  private constructor(target: { host: string; port: number }) {
    this.#server = createServer((client) => this.#join(client, target));
  }

  /** Stands before the server at that address; returns its own address. */
  static async before(address: string): Promise<{ proxy: FlakyProxy; at: URL }> {
    const at = new URL(address);
    const proxy = new FlakyProxy({ host: at.hostname, port: Number(at.port) });
    proxies.push(proxy);
    await new Promise<void>((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve));
    at.host = `127.0.0.1:${String((proxy.#server.address() as { port: number }).port)}`;
    return { proxy, at };
  }

  /** Existing connections carry nothing any more, without being closed; new ones work. */
  freeze(): void {
    for (const one of this.#joined) one.frozen = true;
  }

  /** The same, only for connections that carried statements: those by which a driver monitors its server continue. */
  freezeWorking(): void {
    for (const one of this.#joined) one.frozen ||= one.works;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #join(client: Socket, target: { host: string; port: number }): void {
    const server = connect(target);
    let losing = false;
    const joint: Joint = { frozen: false, works: false };
    this.#joined.add(joint);
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        this.#sockets.delete(socket);
        if (joint.frozen) return;
        this.#joined.delete(joint);
        client.destroy();
        server.destroy();
      });
    }
    client.on('data', (request) => {
      if (joint.frozen) return;
      joint.works ||= request.includes('tidemill_');
      if (joint.works) this.sent += request.length;
      if (this.picky?.(request) === true) losing = true;
      server.write(request);
    });
    server.on('data', (reply) => {
      if (joint.frozen) return;
      if (losing || this.lose > 0) {
        this.lose = losing ? this.lose : this.lose - 1;
        this.lost += 1;
        client.destroy();
      } else {
        if (joint.works) this.received += reply.length;
        client.write(reply);
      }
    });
  }
}

const proxies: FlakyProxy[] = [];

/** A new database, and the way to it through a proxy that is closed after all tests of the file. */
export async function behindProxy(): Promise<{ proxy: FlakyProxy; uri: string; direct: string }> {
  const direct = freshUri();
  const { proxy, at } = await FlakyProxy.before(direct);
  at.search = `directConnection=true&serverSelectionTimeoutMS=1000&heartbeatFrequencyMS=500${at.username === '' ? '' : '&authSource=admin'}`;
  return { proxy, uri: at.href, direct };
}

/** The shared PostgreSQL through a new proxy. */
export async function behindPostgresProxy(): Promise<{ proxy: FlakyProxy; url: string }> {
  const { proxy, at } = await FlakyProxy.before(inject('postgresStoreUrl'));
  return { proxy, url: at.href };
}

// After all tests: a mill that is stopped after its test still needs its way to the server.
cleanUpAfterAll(() => Promise.all(proxies.splice(0).map((proxy) => proxy.close())));
