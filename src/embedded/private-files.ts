/**
 * Makes the files of an embedded database accessible to their owner only, whatever the umask is. PGlite sets the mode
 * of each file that it creates, most of them to 666, so every mode that it sets is masked here.
 */
import { chmod, lstat, mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { NodeFS } from '@electric-sql/pglite/nodefs';

export const PRIVATE_FILE = 0o600;
const PRIVATE_FOLDER = 0o700;
const OF_OTHERS = 0o077;

interface Attributes {
  readonly mode?: number | null;
}

/** The file operations of Emscripten's file system for Node that are replaced. */
interface NodeOperations {
  mknod: (parent: unknown, name: string, mode: number, device: unknown) => unknown;
  setattr: (node: unknown, attributes: Attributes) => unknown;
}

/** Undefined for a PGlite that is built in another way; its folder is private all the same. */
function operationsOf(module: object): NodeOperations | undefined {
  const found: unknown = Reflect.get(module, 'NODEFS');
  return (found as { node_ops?: NodeOperations } | undefined)?.node_ops;
}

function keepPrivate(module: object): void {
  const operations = operationsOf(module);
  if (operations === undefined) return;
  const { mknod, setattr } = operations;
  operations.mknod = (parent, name, mode, device) => mknod(parent, name, mode & ~OF_OTHERS, device);
  operations.setattr = (node, attributes) =>
    setattr(
      node,
      typeof attributes.mode === 'number'
        ? { ...attributes, mode: attributes.mode & ~OF_OTHERS }
        : attributes,
    );
}

/** The folder of a database, in which every new file is private. */
export class PrivateFolder extends NodeFS {
  override async init(
    ...[database, options]: Parameters<NodeFS['init']>
  ): Promise<Awaited<ReturnType<NodeFS['init']>>> {
    const { emscriptenOpts } = await super.init(database, options);
    return {
      emscriptenOpts: { ...emscriptenOpts, preRun: [...(emscriptenOpts.preRun ?? []), keepPrivate] },
    };
  }
}

/** Creates a folder that only its owner can enter, before anything is in it. */
export async function makePrivate(path: string): Promise<void> {
  await mkdir(path, { mode: PRIVATE_FOLDER });
  await chmod(path, PRIVATE_FOLDER);
}

/** Closes a folder that an earlier version left open to others: first the folder itself, then everything in it. */
export async function closeToOthers(path: string): Promise<void> {
  const { mode } = await lstat(path);
  if ((mode & OF_OTHERS) !== 0) await tightened(path, mode);
  for (const entry of await readdir(path, { withFileTypes: true })) {
    const inner = join(path, entry.name);
    if (entry.isDirectory()) await closeToOthers(inner);
    else if (entry.isFile()) {
      const file = await lstat(inner);
      if ((file.mode & OF_OTHERS) !== 0) await tightened(inner, file.mode);
    }
  }
}

/**
 * Removes the access of others. Some file systems have no modes or are read-only, and a folder may belong to another
 * user: its mode then stays as it is.
 */
const tightened = (path: string, mode: number): Promise<void> =>
  chmod(path, mode & 0o777 & ~OF_OTHERS).catch((error: unknown) => {
    const code = (error as NodeJS.ErrnoException).code ?? '';
    if (!['EPERM', 'ENOTSUP', 'ENOSYS', 'EROFS'].includes(code)) throw error;
  });
