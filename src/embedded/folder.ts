import { chmod, link, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { StoreError } from '../core/errors.js';
import { closeToOthers, makePrivate, PRIVATE_FILE } from './private-files.js';

/**
 * Folders that this process has open. The pid in a file does not tell: an earlier process may have had the same one.
 */
const mine = new Set<string>();

/** Databases of the user's own whose folder is guarded, each with the number of stores that are open on it. */
const shared = new WeakMap<object, { readonly folder: Promise<Folder>; stores: number }>();

/** A folder that only this process has open. PGlite would let a second one in, and the two would destroy the data. */
export interface Folder {
  readonly path: string;
  /** Lets the next process in. */
  release(): Promise<void>;
}

/** Takes the folder, and creates a database if there is none. */
export async function takeFolder(dir: string, initialize: (path: string) => Promise<void>): Promise<Folder> {
  const folder = await guard(dir);
  try {
    await ensureDatabase(folder.path, initialize);
  } catch (error) {
    await folder.release();
    throw error;
  }
  return folder;
}

/**
 * Guards the folder of a PGlite of the user's own, which several stores of this process may share. The last of them
 * that closes lets the next process in.
 */
export async function shareFolder(database: object, dir: string): Promise<() => Promise<void>> {
  const held = shared.get(database) ?? { folder: guard(dir), stores: 0 };
  shared.set(database, held);
  held.stores += 1;
  const release = async (): Promise<void> => {
    held.stores -= 1;
    if (held.stores > 0) return;
    shared.delete(database);
    await held.folder.then((folder) => folder.release());
  };
  await held.folder.catch(async (error: unknown) => {
    await release().catch(() => undefined);
    throw error;
  });
  return release;
}

/** Writes the pid file of a folder, if no other process has it open. */
async function guard(dir: string): Promise<Folder> {
  const path = resolve(dir);
  const pidFile = `${path}.pid`;
  if (mine.has(path))
    throw new StoreError(`The folder ${path} is open in this process already; share one store object.`);
  mine.add(path);
  const release = async (): Promise<void> => {
    await rm(pidFile, { force: true });
    mine.delete(path);
  };
  try {
    await mkdir(dirname(path), { recursive: true });
    await takePidFile(pidFile, path);
  } catch (error) {
    mine.delete(path);
    throw error;
  }
  return { path, release };
}

/** Creates the database under another name first: a process that dies half-way leaves nothing that looks like one. */
async function ensureDatabase(path: string, initialize: (path: string) => Promise<void>): Promise<void> {
  const draft = `${basename(path)}.draft-`;
  const siblings = await readdir(dirname(path));
  const leftovers = siblings.filter((name) => name.startsWith(draft));
  await Promise.all(leftovers.map((name) => rm(join(dirname(path), name), { recursive: true, force: true })));
  const found = await readdir(path).catch((): string[] => []);
  if (found.includes('PG_VERSION')) return closeToOthers(path);
  if (found.length > 0)
    throw new StoreError(`The folder ${path} is not empty and contains no database; choose another \`dir\`.`);
  const fresh = join(dirname(path), `${draft}${String(process.pid)}`);
  await makePrivate(fresh);
  await initialize(fresh);
  // Takes the place of an empty folder, if there is one.
  await rename(fresh, path);
}

interface Owner {
  readonly pid: number;
  /** When the process started, as the system reports it; a pid may be reused. */
  readonly began: string;
}

async function takePidFile(file: string, folder: string): Promise<void> {
  const own = JSON.stringify({ pid: process.pid, began: await beginningOf(process.pid) } satisfies Owner);
  const draft = `${file}.${String(process.pid)}`;
  // Flushed, so that a power failure leaves no empty file, which would look like one of another program.
  await writeFile(draft, own, { mode: PRIVATE_FILE, flush: true });
  await chmod(draft, PRIVATE_FILE);
  try {
    // A link is created or refused in one step, with its whole content.
    while (!(await linked(draft, file))) await removeDead(file, folder);
  } finally {
    await rm(draft, { force: true });
  }
}

const linked = (from: string, to: string): Promise<boolean> =>
  link(from, to).then(
    () => true,
    (error: unknown) => {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
      throw error;
    },
  );

/**
 * Removes the pid file of a dead process. Its age is no criterion: a live process may be busy for any length of time.
 */
async function removeDead(file: string, folder: string): Promise<void> {
  const text = await readFile(file, 'utf8').catch(() => undefined);
  if (text === undefined) return;
  const owner = parsed(text);
  if (owner === undefined)
    throw new StoreError(
      `The file ${file} is not one of Tidemill's, which says which process has the folder ${folder} open. Use another ` +
        'folder; or delete the file, if no program needs it.',
    );
  if (await isAlive(owner))
    throw new StoreError(
      `The folder ${folder} is in use by process ${String(owner.pid)}. The embedded store is for one process at a ` +
        'time: stop that process, use another `dir`, or use the PostgreSQL store.',
    );
  const aside = `${file}.dead-${String(process.pid)}`;
  const moved = await rename(file, aside).then(
    () => true,
    () => false,
  );
  if (!moved) return;
  // Another process may have taken the folder between the read and the move. Its file is then put back.
  if ((await readFile(aside, 'utf8')) !== text) await linked(aside, file);
  await rm(aside, { force: true });
}

function parsed(text: string): Owner | undefined {
  try {
    const { pid, began } = JSON.parse(text) as Partial<Owner>;
    return Number.isInteger(pid) && typeof began === 'string' ? { pid: Number(pid), began } : undefined;
  } catch {
    return undefined;
  }
}

async function isAlive({ pid, began }: Owner): Promise<boolean> {
  // This process does not have the folder open: an earlier one had the same pid, as in a restarted container.
  if (pid === process.pid) return false;
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
  const now = await beginningOf(pid);
  return now === '' || began === '' || now === began;
}

/** Returns the time at which a process started, in ticks since boot; empty if the system does not report it. */
async function beginningOf(pid: number): Promise<string> {
  const text = await readFile(`/proc/${String(pid)}/stat`, 'utf8').catch(() => '');
  // The second field is the name of the program in parentheses, and may contain spaces.
  return text.slice(text.lastIndexOf(')') + 2).split(' ')[19] ?? '';
}
