import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';
import { milliseconds } from '../../src/cli/filters.js';
import { clean, cleanLines, harmless, jsonText } from '../../src/cli/render/text.js';
import { hider, safeUrl } from '../../src/cli/secrets.js';
import { hideCredentials } from '../../src/core/text/credentials.js';
import { groupFailures } from '../../src/core/records/failure-groups.js';
import { shellWord } from '../../src/core/text/shell.js';
import { Redactor } from '../../src/dashboard/redaction/redact.js';
import { SECRETS } from '../../src/dashboard/redaction/secret-names.js';
import { parseExact } from '../../src/sql/tables/exact.js';
import { growth, MOST_GROWTH } from './growth.js';

const SRC = fileURLToPath(new URL('../../src/', import.meta.url));

interface Expression {
  readonly file: string;
  readonly literal: string;
  readonly expression: RegExp;
}

/** Reads only what the user's own code wrote, and never long input. */
const OWN_CODE = ['sql/reactive/fragment.ts'];

function expressionsOf(file: string): Expression[] {
  const source = ts.createSourceFile(file, readFileSync(join(SRC, file), 'utf8'), ts.ScriptTarget.ESNext);
  const found: Expression[] = [];
  const look = (node: ts.Node): void => {
    if (ts.isRegularExpressionLiteral(node)) {
      const end = node.text.lastIndexOf('/');
      const expression = new RegExp(node.text.slice(1, end), node.text.slice(end + 1));
      found.push({ file, literal: node.text, expression });
    }
    ts.forEachChild(node, look);
  };
  look(source);
  return found;
}

const ALL = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts') && !OWN_CODE.includes(file))
  .flatMap(expressionsOf);

/** Repeated, these slow down most expressions that can be slowed down. */
const PUMPS = [
  ...Array.from('aA0 \t\n"\'`/\\:@$.-=&%([{_+*;,~e'),
  ...[
    '://',
    ':/',
    '""',
    "''",
    '\\"',
    '/*',
    '--',
    '$a$',
    'a ',
    'a=',
    '0.',
    '0 ',
    'ab',
    'aA',
    '%3d',
    '{"',
    '0x',
    '-0',
  ],
];
const STARTS = ['', '"', '1', 'TZ=a', '@every ', 'password=', 'a://'];

const applied = ({ expression }: Expression, text: string): unknown =>
  expression.global ? text.replaceAll(expression, '') : expression.test(text);

describe('long input', () => {
  it(`each of the ${String(ALL.length)} regular expressions of the source runs in linear time`, () => {
    expect(ALL.length).toBeGreaterThan(50);
    const slow = ALL.flatMap((one) =>
      STARTS.flatMap((start) =>
        PUMPS.filter(
          (pump) =>
            growth((size) => applied(one, `${start}${pump.repeat(size / pump.length)}\u0000!`), 2_000) >
            MOST_GROWTH,
        ).map((pump) => `${one.file} ${one.literal} with ${JSON.stringify(start + pump)}`),
      ),
    );
    expect(slow).toEqual([]);
  });

  const redactor = new Redactor(SECRETS);
  const hide = hider(['postgres://u:p@h/d']);
  const readers: Readonly<Record<string, (text: string) => unknown>> = {
    'the hiding of credentials': hide,
    'the hiding of credentials in our own messages': hideCredentials,
    'a URL without its credentials': (text) => safeUrl(`postgres://${text}`),
    // It shows only the first part of a text; without that it must still be linear.
    'redaction of texts': (text) => redactor.text(text),
    'redaction of values': (text) => redactor.value({ list: [text, { text }] }),
    'text for a terminal': (text) => [clean(text), cleanLines(text), harmless(text, true), jsonText(text)],
    'groups of failures': (text) => groupFailures([{ name: 'a', message: text, at: new Date() }]),
    'a word for a shell': shellWord,
    'a number with very many digits': (text) => parseExact(`[1.${'0'.repeat(text.length)}1]`),
    'a duration': (text) => {
      try {
        return milliseconds('since', text);
      } catch {
        return undefined;
      }
    },
  };
  const hostile = [
    ...PUMPS,
    'password ',
    'password="\\"',
    'password=[',
    'token:bearer ',
    `password="a password='b `,
    '--password ',
    'password=\\',
    '://x:y@',
    'ab://x:y ',
    "password=['",
    '%5b',
  ];

  it.each(Object.entries(readers))('%s takes time linear in the length of its input', (_name, read) => {
    const slow = hostile.filter(
      (pump) => growth((size) => read(pump.repeat(size / pump.length)), 4_000) > MOST_GROWTH,
    );
    expect(slow).toEqual([]);
  });
});
