// What `npm start` runs: the demo of the command line. `--store postgres` and `--store mongodb` start a server from npm for it.
import { fileURLToPath } from 'node:url';
import { ServerError, startMongo, startPostgres } from '@tidemill/servers';
import { runProgram } from '../../src/cli/program.js';
import { processTerminal } from '../../src/cli/terminal.js';
import { ensurePage } from './page.js';

const entry = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
const args = process.argv.slice(2);
const at = args.indexOf('--store') + 1;

ensurePage();

try {
  const server =
    args[at] === 'mongodb' ? await startMongo() : args[at] === 'postgres' ? await startPostgres() : undefined;
  const url = server === undefined ? undefined : 'uri' in server ? server.uri : server.url;
  try {
    const told = args.map((arg, i) => (url !== undefined && i === at ? url : arg));
    process.exitCode = await runProgram(['demo', ...told], { ...processTerminal().terminal, entry });
  } finally {
    await server?.stop();
  }
} catch (error) {
  if (!(error instanceof ServerError)) throw error;
  console.error(error.message);
  process.exitCode = 1;
}
