import type { Argument, Command, Option } from 'commander';
import { buildProgram } from '../../src/cli/program.js';

/** The commands that the help lists. */
export function commandsOf(): readonly Command[] {
  const silent = { write: (): void => undefined };
  const terminal = {
    stdout: silent,
    stderr: silent,
    env: {},
    entry: '',
    interactive: false,
    ask: () => Promise.resolve(''),
    keys: () => () => undefined,
    interrupted: () => new AbortController().signal,
  };
  const { program } = buildProgram(terminal);
  return program.createHelp().visibleCommands(program);
}

/** Options that the commands on a store share are listed once. */
const isShared = ({ helpGroupHeading }: Option): boolean =>
  ['Store:', 'Output:'].includes(helpGroupHeading ?? '');

/** The part of the page below its introduction. */
export function commandsText(): string {
  const commands = commandsOf();
  const shared = new Map(
    commands.flatMap(({ options }) =>
      options.filter(isShared).map((option) => [option.flags, option] as const),
    ),
  );
  return [
    '## Options of all commands on a store',
    table([...shared.values()].map(optionRow)),
    ...commands.flatMap(commandParts),
  ].join('\n\n');
}

function commandParts(command: Command): readonly string[] {
  const own = command.options.filter((option) => !isShared(option));
  const rows = [...command.registeredArguments.filter(isDescribed).map(argumentRow), ...own.map(optionRow)];
  const usage = ['tidemill', command.name(), ...command.registeredArguments.map(argumentText)].join(' ');
  const isOnStore = command.options.some(({ long }) => long === '--schema');
  const shared = isOnStore
    ? ' Also takes the [options of all commands on a store](#options-of-all-commands-on-a-store).'
    : '';
  const about = `\`${usage}\`: ${escaped(command.summary())}.${shared}`;
  return [`## ${command.name()}`, about, ...(rows.length > 0 ? [table(rows)] : [])];
}

const table = (rows: readonly string[]): string =>
  ['| option | default | what it does |', '|---|---|---|', ...rows].join('\n');

const argumentText = (argument: Argument): string => {
  const name = `${argument.name()}${argument.variadic ? '...' : ''}`;
  return argument.required ? `<${name}>` : `[${name}]`;
};

const isDescribed = ({ description }: Argument): boolean => description !== '';

const argumentRow = (argument: Argument): string =>
  row(argumentText(argument), argument.defaultValue, argument.description, argument.argChoices);

const optionRow = ({ flags, negate, defaultValue, description, argChoices }: Option): string =>
  row(flags, negate ? undefined : (defaultValue as unknown), description, argChoices);

function row(name: string, value: unknown, about: string, choices: readonly string[] = []): string {
  const among = choices.length === 0 ? '' : `; one of ${choices.map((choice) => `\`${choice}\``).join(', ')}`;
  return `| \`${escaped(name)}\` | ${valueText(value)} | ${escaped(about)}${among} |`;
}

function valueText(value: unknown): string {
  if (value === undefined) return '';
  return `\`${typeof value === 'string' ? value : JSON.stringify(value)}\``;
}

const escaped = (text: string): string => text.replaceAll('|', '\\|');
