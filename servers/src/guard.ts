import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Writable } from 'node:stream';

/** A message to the watchdog, one JSON object per line. */
export interface Note {
  readonly verb: 'watch' | 'forget';
  readonly pid?: number;
  readonly signal?: NodeJS.Signals;
  readonly folder?: string;
}

let watchdog: Writable | undefined;

/** Ends the server with this signal if this process dies without having stopped it. */
export function watchServer(pid: number, signal: NodeJS.Signals): void {
  send({ verb: 'watch', pid, signal });
}

/** Call this once the server has ended: its pid may soon belong to another process. */
export function forgetServer(pid: number): void {
  send({ verb: 'forget', pid });
}

export function watchFolder(folder: string): void {
  send({ verb: 'watch', folder });
}

export function forgetFolder(folder: string): void {
  send({ verb: 'forget', folder });
}

function send(note: Note): void {
  watchdog ??= startWatchdog();
  watchdog.write(`${JSON.stringify(note)}\n`);
}

function startWatchdog(): Writable {
  const script = fileURLToPath(new URL('./watchdog.mjs', import.meta.url));
  // Detached, so that Ctrl-C, which goes to the whole process group, does not end the watchdog first.
  const child = spawn(process.execPath, [script], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
  child.on('error', ignore);
  child.stdin.on('error', ignore);
  // Neither may keep this process alive: the watchdog waits for its end.
  child.unref();
  (child.stdin as Writable & { unref(): void }).unref();
  return child.stdin;
}

function ignore(): void {
  // Without a watchdog, `stop()` still ends servers.
}
