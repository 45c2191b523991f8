// Outlives the process that started the servers, to end them and remove their folders. Its stdin closes when that
// process dies, in whatever way, SIGKILL included. Plain JavaScript, because it runs under bare node.
import { rm } from 'node:fs/promises';
import { createInterface } from 'node:readline';

/** @type {Map<number, NodeJS.Signals>} */
const servers = new Map();
/** @type {Set<string>} */
const folders = new Set();

for await (const line of createInterface({ input: process.stdin })) {
  const note = /** @type {import('./guard.js').Note} */ (JSON.parse(line));
  if (note.pid !== undefined) {
    if (note.verb === 'watch') servers.set(note.pid, note.signal ?? 'SIGKILL');
    else servers.delete(note.pid);
  }
  if (note.folder !== undefined) {
    if (note.verb === 'watch') folders.add(note.folder);
    else folders.delete(note.folder);
  }
}

for (const [pid, signal] of servers) {
  try {
    process.kill(pid, signal);
  } catch {
    // It is already gone.
  }
}
// A dying server may still write; the retries complete the removal.
for (const folder of folders)
  await rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
