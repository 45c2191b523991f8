import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/** A server that does not see its clients leave keeps their locks; a real network tells it sooner or later. */
const FORGOTTEN_MS = 20_000;

/**
 * Stands between worker processes and a server. Frozen connections stay open but carry no data in either direction, as
 * if a firewall had forgotten them; new connections work.
 */
export class FreezingProxy {
  readonly #server: Server;
  readonly #pairs = new Set<readonly [Socket, Socket]>();
  readonly #forgetting = new Set<NodeJS.Timeout>();

  private constructor(target: { readonly host: string; readonly port: number }) {
    this.#server = createServer((client) => this.#join(client, connect(target)));
  }

  static async before(target: { readonly host: string; readonly port: number }): Promise<FreezingProxy> {
    const proxy = new FreezingProxy(target);
    await new Promise<void>((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get host(): string {
    return `127.0.0.1:${String(this.port)}`;
  }

  freeze(): void {
    for (const pair of this.#pairs) this.#freezePair(pair);
  }

  close(): void {
    for (const timer of this.#forgetting) clearTimeout(timer);
    for (const socket of [...this.#pairs].flat()) socket.destroy();
    this.#server.close();
  }

  #freezePair(pair: readonly [Socket, Socket]): void {
    for (const socket of pair) {
      socket.unpipe();
      socket.pause();
    }
    const timer = setTimeout(() => {
      this.#forgetting.delete(timer);
      for (const socket of pair) socket.destroy();
    }, FORGOTTEN_MS);
    this.#forgetting.add(timer);
  }

  #join(client: Socket, server: Socket): void {
    const pair = [client, server] as const;
    this.#pairs.add(pair);
    for (const socket of pair) {
      socket.on('error', () => undefined);
      socket.on('close', () => {
        this.#pairs.delete(pair);
        client.destroy();
        server.destroy();
      });
    }
    client.pipe(server).pipe(client);
  }
}
