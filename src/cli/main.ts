#!/usr/bin/env node
import { CLOSED_PIPE } from './exit.js';
import { runProgram } from './program.js';
import { processTerminal } from './terminal.js';

const { terminal, closed } = processTerminal();
closed.addEventListener('abort', () => (process.exitCode = CLOSED_PIPE));
// No top-level `await`: the file is also built as CommonJS, which does not have it.
void runProgram(process.argv.slice(2), terminal).then((code) => {
  process.exitCode ??= code;
});
