import { commandsText } from './commands.js';
import { eventsOf } from './events.js';
import { optionsOf, type Option } from './options.js';
import { chapters, sections, type Section } from './sections.js';
import type { Source } from './source.js';

const WRITTEN =
  '<!-- Written by `npm run reference` from the sources in src/. Change those, not this page. -->';

/** The pages of docs/reference, by file name. */
export const pagesOf = (source: Source): ReadonlyMap<string, string> =>
  new Map([
    ['options.md', optionsPage(source)],
    ['events.md', eventsPage(source)],
    ['command-line.md', commandsPage()],
  ]);

/** What the doc comments leave out: every option and event is described, and every optional one has a default. */
export function gapsOf(source: Source): readonly string[] {
  const options = sections.flatMap((section) =>
    optionsOf(source, section.place, section.own).flatMap((option) => {
      const { name, text } = option;
      const gaps = [
        ...(text === '' ? ['a sentence that says what it does'] : []),
        ...(defaultOf(option, section) === undefined ? ['a default'] : []),
      ];
      return gaps.map((gap) => `${section.place}: the comment of ${name} lacks ${gap}.`);
    }),
  );
  const events = eventsOf(source).filter(({ text }) => text === '');
  return [
    ...options,
    ...events.map(({ name }) => `The comment of the event ${name} does not say when it is emitted.`),
  ];
}

const INTRO = `Every option of every public call, with its default; the guides explain them. An unknown option is an error that suggests
the nearest known one.

A \`Duration\` is a number of milliseconds or a text such as \`'90s'\`, \`'1h30m'\`, \`'7d'\`. A \`TimeRange\` is \`{ from?, to? }\` with dates, both
included. A \`Transaction\` is what \`mill.withTransaction\` passes to your function, or a transaction of your own: see
[transactions](../jobs.md#transactions).`;

const optionsPage = (source: Source): string =>
  [
    '# Options',
    WRITTEN,
    INTRO,
    ...chapters.flatMap((chapter) => [
      `## ${chapter.title}`,
      ...chapter.sections.flatMap((section) => sectionParts(source, section)),
    ]),
  ]
    .join('\n\n')
    .concat('\n');

/** The anchor of a section's heading. */
export const slugOf = ({ title }: Section): string => title.toLowerCase().replaceAll(' ', '-');

function sectionParts(source: Source, section: Section): readonly string[] {
  const { title, call, place, guide, note, own } = section;
  const rows = optionsOf(source, place, own).map((option) => row(option, section));
  const [page = ''] = guide.split('#');
  const about = [`\`${call}\`, explained in [${page}](../${guide}).`, ...(note === undefined ? [] : [note])];
  return [
    `### ${title}`,
    about.join(' '),
    ['| option | type | default | what it does |', '|---|---|---|---|', ...rows].join('\n'),
  ];
}

function row(option: Option, section: Section): string {
  const { name, type, text, variant } = option;
  const named = variant === undefined ? `\`${name}\`` : `\`${name}\` with \`${variant}\``;
  return cells(named, typeCell(type), defaultOf(option, section) ?? '', text);
}

const cells = (...texts: readonly string[]): string =>
  `| ${texts.map((text) => text.replaceAll('|', '\\|')).join(' | ')} |`;

/** Types that have a section of their own are links to it. */
function typeCell(type: string): string {
  const section = sectionOf(type);
  return section === undefined ? `\`${type}\`` : `[\`${type}\`](#${slugOf(section)})`;
}

const sectionOf = (type: string): Section | undefined =>
  sections.find(({ place, types = [place.split('#')[1]] }) => types.includes(type));

/** What the page says about a default; undefined if there should be one and the comment has none. */
export function defaultOf(option: Option, section: Section): string | undefined {
  const { isRequired, defaultText, hasKeys, type } = option;
  if (defaultText !== '') return isLiteral(defaultText) ? `\`${defaultText}\`` : defaultText;
  if (isRequired) return '*required*';
  if (section.isFilter === true) return 'any';
  return hasKeys || sectionOf(type) !== undefined ? 'see its keys' : undefined;
}

/** True for a default that is a value, as opposed to words. */
export const isLiteral = (text: string): boolean => /^(?:'[^']*'|true|false|-?[\d,.]+)$/u.test(text);

function eventsPage(source: Source): string {
  const rows = eventsOf(source).map(({ name, fields, text }) =>
    cells(`\`${name}\``, fields.map((field) => `\`${field}\``).join(', '), text),
  );
  return [
    '# Events',
    WRITTEN,
    `What \`mill.on(event, listener)\` listens to. Each event carries one object: \`instanceId: string\` and the fields of its row. Events report
what this instance saw. A listener that throws affects nothing else. The guides say more about those of [jobs](../jobs.md#events) and of
[reactive tasks](../reactive-tasks.md#events).`,
    ['| event | carries | when |', '|---|---|---|', ...rows].join('\n'),
  ]
    .join('\n\n')
    .concat('\n');
}

const commandsPage = (): string =>
  [
    '# Commands',
    WRITTEN,
    'Every command of `tidemill` and every option, as `tidemill <command> --help` prints them. [The command line](../cli.md) shows them at work.',
    commandsText(),
  ]
    .join('\n\n')
    .concat('\n');
