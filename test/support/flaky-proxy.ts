import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterAll } from 'vitest';
import { freshUri } from './stores.js';

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

  private constructor(target: { host: string; port: number }) {
    this.#server = createServer((client) => this.#join(client, target));
  }

  static async before(uri: string): Promise<{ proxy: FlakyProxy; uri: string }> {
    const { hostname, port, pathname } = new URL(uri.replace('mongodb://', 'http://'));
    const proxy = new FlakyProxy({ host: hostname, port: Number(port) });
    await new Promise<void>((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve));
    const address = proxy.#server.address() as { port: number };
    const options = 'directConnection=true&serverSelectionTimeoutMS=1000&heartbeatFrequencyMS=500';
    return { proxy, uri: `mongodb://127.0.0.1:${String(address.port)}${pathname}?${options}` };
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #join(client: Socket, target: { host: string; port: number }): void {
    const server = connect(target);
    let losing = false;
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        this.#sockets.delete(socket);
        client.destroy();
        server.destroy();
      });
    }
    client.on('data', (request) => {
      if (this.picky?.(request) === true) losing = true;
      server.write(request);
    });
    server.on('data', (reply) => {
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
  const { proxy, uri } = await FlakyProxy.before(direct);
  proxies.push(proxy);
  return { proxy, uri, direct };
}

// After all of them: a mill that is stopped after its test still needs its way to the server.
afterAll(async () => {
  await Promise.all(proxies.splice(0).map((proxy) => proxy.close()));
});
