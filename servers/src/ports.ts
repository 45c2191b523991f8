import { createServer } from 'node:net';
import { randomInt } from 'node:crypto';
import { ServerError } from './errors.js';

/**
 * Below the range from which the system picks the local ports of outgoing connections (32768 and up on Linux, 49152
 * on macOS). Within that range, a client that retries a killed member could be given the member's own port, connect
 * to itself, and keep the member from ever starting again.
 */
const lowest = 20_000;
const highest = 32_000;
const tries = 50;

/** Random rather than counted up, so that test files that run side by side do not race for the same port. */
export async function freePort(): Promise<number> {
  for (let n = 0; n < tries; n++) {
    const port = randomInt(lowest, highest);
    if (await isFree(port)) return port;
  }
  throw new ServerError(`Found no free port between ${lowest} and ${highest} in ${tries} tries.`, {
    fix: 'end the servers that were left running (`ss -ltnp` lists them)',
  });
}

export async function freePorts(count: number): Promise<number[]> {
  const ports = new Set<number>();
  while (ports.size < count) ports.add(await freePort());
  return [...ports];
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => {
      resolve(false);
    });
    probe.listen({ port, host: '127.0.0.1', exclusive: true }, () => {
      probe.close(() => {
        resolve(true);
      });
    });
  });
}
