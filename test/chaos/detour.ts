import net from 'node:net';

/** An address, and which ports are to be reached by which others instead. */
export const withDetours = (
  address: string,
  ports: readonly (readonly [from: number, to: number])[],
): string => `${address}#${ports.map((pair) => pair.join(':')).join(',')}`;

/**
 * Takes the detours of an address from now on, in this process: members of a replica set tell drivers their own addresses,
 * past any proxy. Returns the address without them.
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
