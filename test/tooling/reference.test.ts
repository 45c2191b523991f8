import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkedCalls, defaultsInCode, valueIn } from '../../scripts/reference/code.js';
import { eventsOf } from '../../scripts/reference/events.js';
import { optionsOf, splitComment, type Option } from '../../scripts/reference/options.js';
import { defaultOf, gapsOf, isLiteral, pagesOf, slugOf } from '../../scripts/reference/pages.js';
import { sections } from '../../scripts/reference/sections.js';
import { root, Source } from '../../scripts/reference/source.js';
import { DEFAULT_RETENTION } from '../../src/jobs/registry.js';
import { checkFields } from '../../src/store/helpers/document-fields.js';
import { toMs } from '../../src/time/duration.js';

const source = new Source();
const documented = sections.flatMap((section) =>
  optionsOf(source, section.place, section.own).map((option) => ({ option, section })),
);
const placeOf = ({ declaration, name }: Option): string => `${source.pathOf(declaration)} ${name}`;
const markdown = (path: string): string => readFileSync(join(root, 'docs', path), 'utf8');

/** Calls of `checkKeys` that a page of options has nothing to say about, by file and checked expression. */
const APART = new Map([
  ['src/core/options.ts options', 'shared by the counts of jobs and tasks'],
  ['src/core/options.ts value', 'a time range, explained at the top of the page'],
  ['src/jobs/manage/page.ts sort', 'one field and its direction'],
  ['src/reactive/manage/manager.ts sort', 'one field and its direction'],
  ['src/time/interval.ts times', 'the first argument of schedule'],
  ['src/time/retry.ts policy', 'the keys depend on the type of the policy'],
  ['src/mill/limits/manager.ts target', 'a limit by its kind and name'],
  ['src/testing/idle.ts options', 'its callers name their keys'],
  ['src/store/helpers/document-fields.ts given', 'an unknown value; the test of its defaults names the keys'],
  [
    'src/mongodb/reactive/query/fetch.ts options',
    'an unknown value; the last test of this group names the keys',
  ],
  ['src/sql/reactive/query/fetch.ts options', 'the options of getDocument that are not MongoDB’s'],
  ['src/memory/reactive/tasks/hold.ts options', 'the options of getDocument that are not MongoDB’s'],
]);

describe('docs/reference', () => {
  it.each([...pagesOf(source).keys()])(
    'docs/reference/%s is what the sources say; npm run reference writes it',
    (name) => {
      expect(markdown(`reference/${name}`)).toBe(pagesOf(source).get(name));
    },
  );

  it('every option and event has a comment, and every optional option a default', () => {
    expect(gapsOf(source)).toEqual([]);
  });

  it('sections of the reference have different anchors', () => {
    const slugs = sections.map(slugOf);
    expect(new Set(slugs).size).toBe(slugs.length);
  });

  it('sections of the reference link to headings that exist', () => {
    const dead = sections.filter(({ guide }) => {
      const [page = '', anchor] = guide.split('#');
      const headings = [...markdown(page).matchAll(/^#+ (.*)$/gmu)].map(([, heading = '']) =>
        heading
          .toLowerCase()
          .replaceAll(/[^\w -]/gu, '')
          .replaceAll(' ', '-'),
      );
      return anchor !== undefined && !headings.includes(anchor);
    });
    expect(dead.map(({ guide }) => guide)).toEqual([]);
  });

  it('a comment is split into its default and the rest, wherever the default stands', () => {
    expect(splitComment('How many. Default: 5.')).toEqual({ text: 'How many.', defaultText: '5' });
    expect(splitComment('Create it. Default: true. With false, it is an error.')).toEqual({
      text: 'Create it. With false, it is an error.',
      defaultText: 'true',
    });
    expect(splitComment('Its name.')).toEqual({ text: 'Its name.', defaultText: '' });
  });
});

describe('option keys', () => {
  const calls = checkedCalls(source).filter(
    ({ path, text, keys }) => !APART.has(`${path} ${text}`) && keys?.join() !== 'all',
  );

  it('the keys that a call accepts are those of the type of its options', () => {
    expect(calls.length).toBeGreaterThan(35);
    const faults = calls.filter(
      ({ keys, properties }) =>
        keys?.toSorted().join() !==
        properties
          .map(({ name }) => name)
          .toSorted()
          .join(),
    );
    expect(faults.map(({ path, text, keys }) => `${path} ${text}: ${String(keys)}`)).toEqual([]);
  });

  it('every option that a call accepts is in the reference', () => {
    const known = new Set(documented.map(({ option }) => option.declaration as object));
    const missing = calls.flatMap(({ path, properties }) =>
      properties
        .filter(({ declarations }) => !declarations.some((one) => known.has(one)))
        .map(({ name }) => `${path} ${name}`),
    );
    expect(missing).toEqual([]);
  });

  it('calls that are left out of these comparisons exist', () => {
    const made = new Set(checkedCalls(source).map(({ path, text }) => `${path} ${text}`));
    expect([...APART.keys()].filter((call) => !made.has(call))).toEqual([]);
  });

  it('MongoDB accepts the options of getDocument that the reference lists', () => {
    const call = checkedCalls(source).find(({ path }) => path === 'src/mongodb/reactive/query/fetch.ts');
    const options = optionsOf(source, 'src/reactive/run/context.ts#GetDocumentOptions').map(
      ({ name }) => name,
    );
    // The runner of tasks takes the transaction out before it calls the store.
    expect([...(call?.keys ?? []), 'transaction'].toSorted()).toEqual(options.toSorted());
  });
});

/** Literal defaults that no destructuring or `??` in the code shows, and where they come from. */
const ELSEWHERE = new Map([
  ['src/jobs/definition.ts completed', 'compared below'],
  ['src/jobs/definition.ts failed', 'compared below'],
  ['src/jobs/definition.ts cancelled', 'compared below'],
  ['src/reactive/options.ts globalsCollection', 'the default of collections.globals'],
  ['src/mongodb/options.ts collections.globals', 'a field of the store, which a mill may set'],
  ['src/reactive/run/context.ts readConcern', 'the default of the server'],
  ['src/documents/options.ts pollInterval.max', 'depends on min'],
  ['src/documents/finding.ts order', 'whatever is not -1'],
  ['src/dashboard/options.ts maxStreams.total', 'both limits come from one expression'],
  ['src/dashboard/options.ts maxStreams.perViewer', 'both limits come from one expression'],
  ['src/time/retry.ts jitter', 'whatever is not given is 0'],
  ['src/time/retry.ts timezone', 'the default of cron expressions'],
  ['src/jobs/enqueue/enqueuer.ts delay', 'whatever is not given is now'],
  ...Object.keys(checkFields('test', undefined)).map(
    (field) => [`src/store/documents.ts ${field}`, 'compared below'] as const,
  ),
]);

describe('defaults', () => {
  const inCode = defaultsInCode(source);

  it('a default in a comment is the value that the code uses', () => {
    const wrong = documented.flatMap(({ option }) =>
      (inCode.get(option.declaration) ?? []).flatMap((value) => {
        const said = isLiteral(option.defaultText) ? valueIn(option.defaultText) : undefined;
        const agrees = said === undefined ? option.defaultText.includes(String(value)) : said === value;
        return agrees
          ? []
          : [`${placeOf(option)}: the comment says ${option.defaultText}, the code ${String(value)}`];
      }),
    );
    expect(wrong).toEqual([]);
  });

  it('every literal default in a comment is found in the code', () => {
    const literal = documented.filter(({ option }) => isLiteral(option.defaultText));
    expect(literal.length).toBeGreaterThan(60);
    const unproven = literal
      .filter(({ option }) => !inCode.has(option.declaration))
      .map(({ option }) => placeOf(option));
    expect([...new Set(unproven)].toSorted()).toEqual([...ELSEWHERE.keys()].toSorted());
  });

  it('the default retention and the default fields of documents are those of the reference', () => {
    const saidBy = (place: string): Record<string, unknown> =>
      Object.fromEntries(
        optionsOf(source, place).map(({ name, defaultText }) => [name, valueIn(defaultText)]),
      );
    const retention = saidBy('src/jobs/definition.ts#Retention');
    expect(
      Object.fromEntries(Object.entries(retention).map(([name, keep]) => [name, toMs('test', name, keep)])),
    ).toEqual(DEFAULT_RETENTION);
    expect(saidBy('src/store/documents.ts#DocumentFields')).toEqual(checkFields('test', undefined));
  });
});

/** Rows of a table whose header begins with `option` and `default`, with the text before it up to the last heading. */
const TABLE = /^\| option[^|]*\| default \|[^\n]*\n\|[-|]+\n(?<rows>(?:\|.*\n)+)/gmu;

describe('guides', () => {
  const guides = readdirSync(join(root, 'docs')).filter((name) => name.endsWith('.md'));
  const tables = guides.flatMap((guide) => {
    const text = markdown(guide);
    return [...text.matchAll(TABLE)].map(({ index, groups }) => {
      const before = text.slice(0, index).split(/^#+ /mu).at(-1) ?? '';
      const anchor = [...before.matchAll(/\(reference\/options\.md#([\w-]+)\)/gu)].at(-1)?.[1];
      return { guide, anchor, rows: (groups?.['rows'] ?? '').trimEnd().split('\n') };
    });
  });

  it('a table of options in a guide follows a link to its section of the reference', () => {
    const anchors = new Set(sections.map(slugOf));
    expect(tables.length).toBeGreaterThan(5);
    expect(tables.filter(({ anchor }) => !anchors.has(anchor ?? '')).map(({ guide }) => guide)).toEqual([]);
  });

  it('options in a table of a guide exist, with the same defaults as in the reference', () => {
    const faults = tables.flatMap(({ guide, anchor, rows }) => {
      const known = new Map(
        documented
          .filter(({ section }) => slugOf(section) === anchor)
          .map(({ option, section }) => [option.name, defaultOf(option, section)]),
      );
      return rows.flatMap((row) => {
        const [, names = '', said = ''] = row.split(/(?<!\\)\|/u);
        return [...names.matchAll(/`([\w.]+)[^`]*`/gu)].flatMap(([, name = '']) =>
          known.get(name) === said.trim()
            ? []
            : [`${guide}: ${name} is ${said.trim()}, not ${String(known.get(name))}`],
        );
      });
    });
    expect(faults).toEqual([]);
  });

  it('guides name no event that a mill does not emit', () => {
    const known = new Set(eventsOf(source).map(({ name }) => name));
    const named = guides.flatMap((guide) =>
      [...markdown(guide).matchAll(/`((?:job|task|lease|leader|history|reconcile|stale):[a-z]+)`/gu)].map(
        ([, event = '']) => event,
      ),
    );
    expect(named.length).toBeGreaterThan(15);
    expect(named.filter((event) => !known.has(event))).toEqual([]);
  });
});
