import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterAll, inject } from 'vitest';
import { freshUri } from './stores.js';

/** One connection through the proxy. */
interface Joint {
  frozen: boolean;
  /** It has carried a statement on a collection or table of ours. */
  works: boolean;
}

/**
 * Stands between a driver and a server, and loses answers: the request arrives, is carried out, and the connection
 * breaks before the reply. What a real network does, when it is asked to.
 */
export class FlakyProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** How many of the next replies are lost; Infinity cuts the server off. */
  lose = 0;
  /** Called with each request; true loses its reply. */
  picky: ((request: Buffer) => boolean) | undefined;
  lost = 0;
  readonly #joined = new Set<Joint>();

  private constructor(target: { host: string; port: number }) {
    this.#server = createServer((client) => this.#join(client, target));
  }

  /** Stands before the server of that address; answers where it is to be reached itself. */
  static async before(address: string): Promise<{ proxy: FlakyProxy; at: URL }> {
    const at = new URL(address);
    const proxy = new FlakyProxy({ host: at.hostname, port: Number(at.port) });
    proxies.push(proxy);
    await new Promise<void>((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve));
    at.host = `127.0.0.1:${String((proxy.#server.address() as { port: number }).port)}`;
    return { proxy, at };
  }

  /** Nothing passes on the connections that there are, and no end tells of it; new ones work. */
  freeze(): void {
    for (const one of this.#joined) one.frozen = true;
  }

  /** The same, for connections that carried statements only: those by which a driver watches its server go on. */
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
      if (this.picky?.(request) === true) losing = true;
      server.write(request);
    });
    server.on('data', (reply) => {
      if (joint.frozen) return;
      if (losing || this.lose > 0) {
        this.lose = losing ? this.lose : this.lose - 1;
        this.lost += 1;
        client.destroy();
      } else client.write(reply);
    });
  }
}

const proxies: FlakyProxy[] = [];

/** A database of the caller's own, and the way to it through a proxy that is closed after all tests of the file. */
export async function behindProxy(): Promise<{ proxy: FlakyProxy; uri: string; direct: string }> {
  const direct = freshUri();
  const { proxy, at } = await FlakyProxy.before(direct);
  at.search = `directConnection=true&serverSelectionTimeoutMS=1000&heartbeatFrequencyMS=500${at.username === '' ? '' : '&authSource=admin'}`;
  return { proxy, uri: at.href, direct };
}

/** The shared PostgreSQL through a proxy of the caller's own. */
export async function behindPostgresProxy(): Promise<{ proxy: FlakyProxy; url: string }> {
  const { proxy, at } = await FlakyProxy.before(inject('postgresStoreUrl'));
  return { proxy, url: at.href };
}

// After all of them: a mill that is stopped after its test still needs its way to the server.
afterAll(async () => {
  await Promise.all(proxies.splice(0).map((proxy) => proxy.close()));
});
