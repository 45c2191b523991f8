import { readFile } from 'node:fs/promises';

const maxLines = 12;

/**
 * Returns the lines of a log that tell why a server ended. mongod writes one JSON object per line, and some twenty
 * informational lines after the fatal one, so its last lines alone would hide the reason.
 */
export async function tellingLines(logFile: string): Promise<string> {
  const text = await readFile(logFile, 'utf8').catch(() => '');
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  const telling = lines.map(condense).filter((line) => line !== undefined);
  return (telling.length > 0 ? telling : lines).slice(-maxLines).join('\n');
}

/** Keeps plain lines, shortens errors to their message, and leaves out anything below an error. */
function condense(line: string): string | undefined {
  if (!line.startsWith('{"t":')) return line;
  try {
    const entry = JSON.parse(line) as { s?: string; msg?: string; attr?: unknown };
    if (entry.s !== 'E' && entry.s !== 'F') return undefined;
    return `${entry.msg ?? ''} ${entry.attr === undefined ? '' : JSON.stringify(entry.attr)}`;
  } catch {
    return line;
  }
}

/** Known ways to fail, each with its fix. Log text is matched because a dead process offers nothing else. */
const remedies: readonly (readonly [RegExp, string])[] = [
  [/libcurl\.so/, 'install the library that mongod loads: `apt-get install libcurl4`'],
  [/lib(ssl|crypto)\.so\.1\.1/, 'fetch the packages: `npm run fetch`'],
  [/address already in use/i, 'end whoever holds the port (`ss -ltnp` names it)'],
  [
    /lock file|DBPathInUse|NonExistentPath|permission denied/i,
    'name a data folder that you can write to, and that no server uses',
  ],
  [/SIGILL/, 'this CPU lacks AVX, which MongoDB 5 and later need: point MONGODB_URI at another machine'],
  [/no space left/i, 'free some disk space, or set TMPDIR to a disk that has it'],
];

export function remedyFor(why: string): string | undefined {
  return remedies.find(([pattern]) => pattern.test(why))?.[1];
}
