import type { Command } from 'commander';
import { Exit } from './exit.js';
import type { Terminal } from './terminal.js';

export interface CommandTexts {
  readonly summary: string;
  /** Shown below the summary in the command's own help. */
  readonly about?: string;
  /** Complete command lines, each with what it does. */
  readonly examples: readonly (readonly [line: string, what: string])[];
}

/** Adds commands in a uniform way, and keeps the exit code of the one that ran. */
export class CommandBuilder {
  readonly terminal: Terminal;
  readonly program: Command;
  exit: Exit = Exit.OK;

  constructor(terminal: Terminal, program: Command) {
    this.terminal = terminal;
    this.program = program;
  }

  /** `usage` is the name with its arguments, such as `show <id>`. */
  command(usage: string, { summary, about, examples }: CommandTexts): Command {
    const command = this.program.command(usage).summary(summary);
    const sentence = `${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`;
    command.description(about === undefined ? sentence : `${sentence}\n\n${about}`);
    const width = Math.max(...examples.map(([line]) => line.length));
    const lines = examples.map(([line, what]) => `  ${line.padEnd(width)}  ${what}`);
    return command.addHelpText('after', `\nExamples:\n${lines.join('\n')}`);
  }

  /** Wraps an action that returns its exit code; undefined means OK. */
  action<Args extends unknown[]>(
    work: (...args: Args) => Promise<Exit | undefined>,
  ): (...args: Args) => Promise<void> {
    return async (...args) => {
      this.exit = (await work(...args)) ?? Exit.OK;
    };
  }
}

/** Collects the values of an option that can be given several times. */
export const gathered = (value: string, before: readonly string[] = []): readonly string[] => [
  ...before,
  value,
];
