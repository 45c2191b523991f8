import { existsSync, readFileSync } from 'node:fs';

/** The description of this package is one folder above the sources and the entries, and two above what they share. */
const NEAR = new URL('../package.json', import.meta.url);
const FAR = new URL('../../package.json', import.meta.url);

/** The version of this package. */
export function versionOf(): string {
  const text = readFileSync(existsSync(NEAR) ? NEAR : FAR, 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
