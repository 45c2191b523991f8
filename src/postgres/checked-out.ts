interface Audible {
  on(event: string, listener: (...args: unknown[]) => void): unknown;
}

type Given<Client> = (error: Error | undefined, client?: Client) => void;

/**
 * A client of a pool, listened to from the first moment on: a server that ends the connection may say so together with the answer
 * that made it free, before a promise is heard, and an error that nobody listens to would end the process.
 */
export function checkedOut<Client extends Audible>(
  pool: { connect(): Promise<Client> },
  onError: (error: unknown) => void = () => undefined,
): Promise<Client> {
  return new Promise((resolve, reject) => {
    const given: Given<Client> = (error, client) => {
      if (client === undefined) {
        reject(error ?? new Error('the pool gave no client'));
        return;
      }
      client.on('error', onError);
      resolve(client);
    };
    const connect = pool.connect.bind(pool) as (given: Given<Client>) => Promise<Client> | undefined;
    // A pool that knows promises only answers one, and calls nobody.
    connect(given)?.then((client) => given(undefined, client), given);
  });
}
