#!/usr/bin/env node
import { runProgram } from './program.js';
import { processTerminal } from './terminal.js';

// No top-level `await`: the file is also built as CommonJS, which does not have it.
void runProgram(process.argv.slice(2), processTerminal()).then((code) => {
  process.exitCode = code;
});
