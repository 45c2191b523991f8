import net from 'node:net';

/** An address, with the ports that must be reached through other ports. */
export const withDetours = (
  address: string,
  ports: readonly (readonly [from: number, to: number])[],
): string => `${address}#${ports.map((pair) => pair.join(':')).join(',')}`;

/**
 * Applies the detours of an address in this process from now on: members of a replica set tell drivers their own
 * addresses, which bypass any proxy. Returns the address without them.
 */
export function takeDetours(given: string): string {
  const [address = '', text = ''] = given.split('#');
  const ports = new Map(
    text
      .split(',')
      .filter((pair) => pair !== '')
      .map((pair) => pair.split(':').map(Number) as [number, number]),
  );
  if (ports.size === 0) return address;
  const { createConnection } = net;
  Reflect.set(net, 'createConnection', (options: net.TcpNetConnectOpts, ...rest: []) =>
    createConnection({ ...options, port: ports.get(options.port) ?? options.port }, ...rest),
  );
  return address;
}
