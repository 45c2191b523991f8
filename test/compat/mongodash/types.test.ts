/** The types of the entry are those of mongodash: programs that compile against one compile against the other. */
import { join, resolve } from 'node:path';
import ts from 'typescript';
import { expect, it } from 'vitest';
import { fetchPackages } from '../../../scripts/fetch.mjs';

const root = resolve(import.meta.dirname, '../../..');
const originals = join(root, 'test/originals/node_modules');

const PROGRAMS = [
  'test/compat/apps/mongodash/app.ts',
  'test/compat/mongodash/moving.ts',
  'test/compat/mongodash/typed.ts',
];

/** Where the modules of the programs are, which import the name of our entry. */
const SIDES = {
  mongodash: {
    'tidemill/compat/mongodash': join(originals, 'mongodash/dist/types/index.d.ts'),
    'tidemill/compat/mongodash/testing': join(originals, 'mongodash/dist/types/testing/index.d.ts'),
    mongodb: join(originals, 'mongodb/mongodb.d.ts'),
  },
  'tidemill/compat/mongodash': {
    'tidemill/compat/mongodash': join(root, 'src/compat/mongodash/index.ts'),
    'tidemill/compat/mongodash/testing': join(root, 'src/compat/mongodash/testing/index.ts'),
  },
} as const;

function problemsOf(paths: Readonly<Record<string, string>>): readonly string[] {
  const program = ts.createProgram(
    PROGRAMS.map((file) => join(root, file)),
    {
      strict: true,
      noEmit: true,
      skipLibCheck: true,
      target: ts.ScriptTarget.ES2023,
      module: ts.ModuleKind.ESNext,
      moduleResolution: ts.ModuleResolutionKind.Bundler,
      types: ['node'],
      typeRoots: [join(root, 'node_modules/@types')],
      paths: Object.fromEntries(Object.entries(paths).map(([name, file]) => [name, [file]])),
    },
  );
  const files = new Set(PROGRAMS.map((file) => join(root, file)));
  return ts
    .getPreEmitDiagnostics(program)
    .filter(({ file }) => file === undefined || files.has(file.fileName))
    .map(
      ({ file, messageText }) =>
        `${file?.fileName ?? ''}: ${ts.flattenDiagnosticMessageText(messageText, '\n')}`,
    );
}

it.each(Object.entries(SIDES))('programs compile against the types of %s', async (_side, paths) => {
  await fetchPackages('test/originals');
  expect(problemsOf(paths)).toEqual([]);
});
