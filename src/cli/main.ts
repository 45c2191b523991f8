#!/usr/bin/env node
import { runProgram } from './program.js';
import { processTerminal } from './terminal.js';

// No `await` here: the file is built as CommonJS too, which has none at its top level.
void runProgram(process.argv.slice(2), processTerminal()).then((code) => {
  process.exitCode = code;
});
