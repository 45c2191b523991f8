import type { Command } from 'commander';
import type { CommandBuilder } from '../command-builder.js';

const SHELLS = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof SHELLS)[number];

/** What a shell needs to know about a command. */
interface Known {
  readonly name: string;
  readonly summary: string;
  /** Words that may follow: the choices of its arguments. */
  readonly words: readonly string[];
  readonly options: readonly {
    readonly flag: string;
    readonly about: string;
    readonly choices: readonly string[];
  }[];
}

export function addCompletion(builder: CommandBuilder): void {
  const command = builder.command('completion', {
    summary: 'prints a completion script for a shell',
    examples: [
      ['source <(tidemill completion bash)', 'in ~/.bashrc'],
      ['tidemill completion zsh > "${fpath[1]}/_tidemill"', 'then start a new shell'],
      ['tidemill completion fish > ~/.config/fish/completions/tidemill.fish', ''],
    ],
  });
  command.addArgument(command.createArgument('<shell>', 'the shell').choices([...SHELLS])).action(
    builder.action(async (shell: Shell) => {
      builder.terminal.stdout.write(SCRIPTS[shell](knownOf(builder.program)));
      return undefined;
    }),
  );
}

/** Reads the commands themselves, so that there is no second list. */
function knownOf(program: Command): readonly Known[] {
  const help = program.createHelp();
  return help
    .visibleCommands(program)
    .filter((command) => command.name() !== 'help')
    .map((command) => ({
      name: command.name(),
      summary: command.summary(),
      words: command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []),
      options: help.visibleOptions(command).map(({ long, description, argChoices }) => ({
        flag: long ?? '',
        about: description,
        choices: argChoices ?? [],
      })),
    }));
}

const quoted = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;

const SCRIPTS: Readonly<Record<Shell, (known: readonly Known[]) => string>> = {
  bash: (known) => `# bash completion for tidemill
_tidemill() {
  local current="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" command="" word
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ "$word" != -* ]]; then command="$word"; break; fi
  done
  case "$command $before" in
${known.flatMap(({ name, options }) => options.filter(({ choices }) => choices.length > 0).map(({ flag, choices }) => `    ${quoted(`${name} ${flag}`)}) COMPREPLY=($(compgen -W ${quoted(choices.join(' '))} -- "$current")); return ;;`)).join('\n')}
  esac
  case "$command" in
    '') COMPREPLY=($(compgen -W ${quoted(known.map(({ name }) => name).join(' '))} -- "$current")) ;;
${known.map(({ name, words, options }) => `    ${name}) COMPREPLY=($(compgen -W ${quoted([...words, ...options.map(({ flag }) => flag)].join(' '))} -- "$current")) ;;`).join('\n')}
  esac
}
complete -o default -F _tidemill tidemill
`,
  zsh: (known) => `#compdef tidemill
_tidemill() {
  local -a words_of
  if (( CURRENT == 2 )); then
    words_of=(${known.map(({ name, summary }) => quoted(`${name}:${summary.replaceAll(':', String.raw`\:`)}`)).join(' ')})
    _describe command words_of
    return
  fi
  case "$words[2]" in
${known.map(({ name, words, options }) => `    ${name}) words_of=(${[...words.map(quoted), ...options.map(({ flag, about }) => quoted(`${flag}:${about.replaceAll(':', String.raw`\:`)}`))].join(' ')}) ;;`).join('\n')}
  esac
  _describe option words_of
}
if [ "$funcstack[1]" = "_tidemill" ]; then _tidemill "$@"; else compdef _tidemill tidemill; fi
`,
  fish: (known) =>
    [
      '# fish completion for tidemill',
      'complete -c tidemill -f',
      ...known.flatMap(({ name, summary, words, options }) => [
        `complete -c tidemill -n __fish_use_subcommand -a ${name} -d ${quoted(summary)}`,
        ...words.map((word) => `complete -c tidemill -n '__fish_seen_subcommand_from ${name}' -a ${word}`),
        ...options.map(
          ({ flag, about, choices }) =>
            `complete -c tidemill -n '__fish_seen_subcommand_from ${name}' -l ${flag.slice(2)} -d ${quoted(about)}` +
            (choices.length > 0 ? ` -x -a ${quoted(choices.join(' '))}` : ''),
        ),
      ]),
      '',
    ].join('\n'),
};
