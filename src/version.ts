import { readFileSync } from 'node:fs';

/** The version of this package. Source and build are both one folder below its description. */
export function versionOf(): string {
  const text = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
