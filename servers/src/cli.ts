import { startMongo, startPostgres, startShardedMongo, type Stoppable } from './index.js';

type Started = Stoppable & ({ readonly uri: string } | { readonly url: string });

const servers: Readonly<Record<string, () => Promise<Started>>> = {
  mongodb: () => startMongo(),
  'mongodb-3': () => startMongo({ nodes: 3 }),
  'mongodb-sharded': () => startShardedMongo(),
  postgres: () => startPostgres(),
};

/**
 * A signal handler alone does not keep node running, and a server given by MONGODB_URI has no child process that
 * does.
 */
function stopAsked(): Promise<void> {
  return new Promise((resolve) => {
    const keepAlive = setInterval(() => undefined, 60_000);
    const onSignal = (): void => {
      clearInterval(keepAlive);
      resolve();
    };
    process.once('SIGINT', onSignal).once('SIGTERM', onSignal);
  });
}

async function main(name: string | undefined): Promise<number> {
  const start = name !== undefined && Object.hasOwn(servers, name) ? servers[name] : undefined;
  if (start === undefined) {
    console.error(`Usage: tsx servers/src/cli.ts ${Object.keys(servers).join('|')}`);
    return 2;
  }
  try {
    await using server = await start();
    // Installed before the line is printed: its reader may send a signal at once.
    const asked = stopAsked();
    console.log('uri' in server ? server.uri : server.url);
    console.error('Ctrl-C stops it.');
    await asked;
    return 0;
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    return 1;
  }
}

process.exitCode = await main(process.argv[2]);
