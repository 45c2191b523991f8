import { Socket } from 'node:net';

type Connect = (this: Socket, ...given: unknown[]) => Socket;

/** Counts the bytes that this process receives on all connections made from now on. */
export function countingBytes(): () => number {
  const sockets = new Set<Socket>();
  const prototype = Socket.prototype as unknown as { connect: Connect };
  const { connect } = prototype;
  prototype.connect = function (...given) {
    sockets.add(this);
    return connect.apply(this, given);
  };
  return () => [...sockets].reduce((sum, { bytesRead }) => sum + bytesRead, 0);
}
