#!/usr/bin/env node
import { runProgram } from './program.js';
import { realWorld } from './cli-env.js';

// No `await` here: the file is built as CommonJS too, which has none at its top level.
void runProgram(process.argv.slice(2), realWorld()).then((code) => {
  process.exitCode = code;
});
