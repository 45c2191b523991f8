import type { Command } from 'commander';
import { Exit } from './exit.js';
import type { Terminal } from './terminal.js';

export interface CommandTexts {
  readonly summary: string;
  /** Said under the summary in the command's own help. */
  readonly about?: string;
  /** Whole command lines, each with what it does. */
  readonly examples: readonly (readonly [line: string, what: string])[];
}

/** What commands are hung onto: it makes them alike, and keeps the exit code of the one that ran. */
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

  /** An action whose answer is the exit code; none means that all is well. */
  action<Args extends unknown[]>(
    work: (...args: Args) => Promise<Exit | undefined>,
  ): (...args: Args) => Promise<void> {
    return async (...args) => {
      this.exit = (await work(...args)) ?? Exit.OK;
    };
  }
}

/** For options that may be given several times. */
export const gathered = (value: string, before: readonly string[] = []): readonly string[] => [
  ...before,
  value,
];
