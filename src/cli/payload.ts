import { readFileSync } from 'node:fs';
import { reasonOf } from '../mill/tools.js';
import { CliError, Exit } from './exit.js';

/** Reads the value of `--data`: JSON, or `@` and the path of a file that contains it. */
export function readPayload(text: string): unknown {
  const json = text.startsWith('@') ? readFile(text.slice(1)) : text;
  try {
    return JSON.parse(json) as unknown;
  } catch (error) {
    throw new CliError(Exit.USAGE, `--data must be JSON, or @file with JSON in it: ${reasonOf(error)}`);
  }
}

function readFile(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new CliError(Exit.USAGE, `--data cannot read the file "${path}": ${reasonOf(error)}`);
  }
}
