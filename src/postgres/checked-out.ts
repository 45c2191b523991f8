interface Audible {
  on(event: string, listener: (...args: unknown[]) => void): unknown;
}

type Given<Client> = (error: Error | undefined, client?: Client) => void;

/**
 * Checks out a client that has an error listener from the first moment. A server that ends the connection may say so
 * together with the response that made the client free, before a promise callback runs, and an error without a listener
 * would end the process.
 */
export function checkedOut<Client extends Audible>(
  pool: { connect(): Promise<Client> },
  onError: (error: unknown) => void = () => undefined,
): Promise<Client> {
  return new Promise((resolve, reject) => {
    const given: Given<Client> = (error, client) => {
      if (client === undefined) {
        reject(error ?? new Error('the pool returned no client'));
        return;
      }
      client.on('error', onError);
      resolve(client);
    };
    const connect = pool.connect.bind(pool) as (given: Given<Client>) => Promise<Client> | undefined;
    // A pool that supports promises only returns one, and ignores the callback.
    connect(given)?.then((client) => given(undefined, client), given);
  });
}
