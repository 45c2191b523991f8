import { execFile } from 'node:child_process';
import {
  cp,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  realpath,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { packed, type Packed } from '../support/packed.js';
import { freshUri } from '../support/stores.js';

const exec = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');
const bin = (name: string): string => join(root, 'node_modules/.bin', name);

const compilerOptions = {
  target: 'es2022',
  module: 'nodenext',
  types: ['node'],
  strict: true,
  exactOptionalPropertyTypes: true,
  skipLibCheck: false,
};

let temporary: string;
let pack: Packed;
let built: string;

beforeAll(async () => {
  temporary = await mkdtemp(join(tmpdir(), 'tidemill-package-'));
  pack = await packed();
  built = pack.folder;
}, 600_000);

afterAll(async () => {
  await rm(temporary, { recursive: true, force: true });
});

/**
 * An application with the built package, its dependencies and the named drivers installed, and nothing else. The
 * package is copied, not linked: what it imports must be found from the application, not from here.
 */
async function makeApplication(
  name: string,
  drivers: readonly string[],
  entries: readonly string[],
): Promise<string> {
  const folder = join(temporary, name);
  const { dependencies } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>;
  };
  await cp(built, join(folder, 'node_modules/tidemill'), { recursive: true });
  for (const installed of ['@types/node', ...Object.keys(dependencies), ...drivers]) {
    const link = join(folder, 'node_modules', installed);
    await mkdir(dirname(link), { recursive: true });
    await symlink(join(root, 'node_modules', installed), link);
  }
  for (const main of ['main.mts', 'main.cts']) await writeFile(join(folder, main), useOf(entries));
  return folder;
}

function useOf(entries: readonly string[]): string {
  const lines = entries.map(
    (entry, i) =>
      `import * as entry${i} from '${entry}'; if (Object.keys(entry${i}).length === 0) throw new Error('${entry} is empty');`,
  );
  return lines.join('\n');
}

/** What an application imports that has only some drivers installed. */
const APPLICATIONS = {
  'without-driver': {
    drivers: [],
    entries: [
      'tidemill',
      'tidemill/documents',
      'tidemill/memory',
      'tidemill/store',
      'tidemill/testing',
      'tidemill/testing/conformance',
    ],
  },
  'with-mongodb': {
    drivers: ['mongodb'],
    entries: [
      'tidemill',
      'tidemill/mongodb',
      'tidemill/compat/mongodash',
      'tidemill/compat/mongodash/testing',
      'tidemill/compat/mongodb-cron',
      'tidemill/compat/monque',
    ],
  },
  // Without the types of pg.
  'with-pg': { drivers: ['pg'], entries: ['tidemill', 'tidemill/postgres'] },
  'with-pglite': { drivers: ['@electric-sql/pglite'], entries: ['tidemill', 'tidemill/embedded'] },
} as const;

let compiling: Promise<string> | undefined;

/**
 * Compiles all of them in one program, with the declarations checked too, and returns what the compiler says. Node's
 * declarations, which take longest, are then checked once.
 */
async function compileApplications(): Promise<string> {
  for (const [name, { drivers, entries }] of Object.entries(APPLICATIONS)) {
    const folder = await makeApplication(name, drivers, entries);
    const file = join(folder, 'node_modules/tidemill/package.json');
    const own = JSON.parse(await readFile(file, 'utf8')) as object;
    // The compiler takes packages of one name and version for one package, and would look into the first only.
    await writeFile(file, JSON.stringify({ ...own, version: `0.0.0-${name}` }));
  }
  const include = Object.keys(APPLICATIONS).map((name) => `${name}/main.*ts`);
  // All have the same types of Node.
  const typeRoots = ['without-driver/node_modules/@types'];
  const project = { compilerOptions: { ...compilerOptions, typeRoots }, include };
  await writeFile(join(temporary, 'tsconfig.json'), JSON.stringify(project));
  const { stdout } = await exec(bin('tsc'), ['-p', temporary, '--listFiles']).catch(
    (error: unknown) => error as { stdout: string },
  );
  const lines = stdout.trimEnd().split('\n');
  for (const name of Object.keys(APPLICATIONS))
    expect(lines).toContain(join(await realpath(temporary), name, 'node_modules/tidemill/dist/index.d.mts'));
  return lines.filter((line) => !line.startsWith('/')).join('\n');
}

/** Loads both module formats of an application once all are compiled. */
async function compileAndRun(name: keyof typeof APPLICATIONS): Promise<void> {
  compiling ??= compileApplications();
  expect(await compiling).toBe('');
  await exec(process.execPath, [join(temporary, name, 'main.mjs')]);
  await exec(process.execPath, [join(temporary, name, 'main.cjs')]);
}

/** What the lines print in an ES module, and then in a CommonJS one. */
async function runBoth(folder: string, use: string): Promise<string[]> {
  const said: string[] = [];
  for (const [type, load] of [
    ['module', `import { Tidemill } from 'tidemill';`],
    ['commonjs', `const { Tidemill } = require('tidemill');`],
  ] as const) {
    const args = [`--input-type=${type}`, '--eval', `${load}\n${use}`];
    said.push((await exec(process.execPath, args, { cwd: folder })).stdout);
  }
  return said;
}

// Checking every declaration, also Node's own, takes its time on a busy machine.
describe('the built package', () => {
  it.each([
    ['without any driver, except for the stores that need one', 'without-driver'],
    ['with only the driver of MongoDB', 'with-mongodb'],
    ['with only the driver of PostgreSQL, and without its types', 'with-pg'],
    ['with only PGlite', 'with-pglite'],
  ] as const)('the package compiles and loads %s', async (_, name) => {
    await compileAndRun(name);
  });

  it('loads the conformance suite only for those who ask for it', async () => {
    const all = await readdir(join(built, 'dist'), { recursive: true });
    const files = all.filter((file) => /\.[cm]?js$/.test(file) && !file.startsWith('dashboard/'));
    const loaded = await Promise.all(
      files.map(async (file) => [file, await readFile(join(built, 'dist', file), 'utf8')] as const),
    );
    const refers = loaded.filter(([, text]) => /["'`]\.\.?\/conformance\./u.test(text)).map(([file]) => file);
    // Its CommonJS entry requires the ES module.
    expect(refers).toEqual(['conformance.cjs']);
  });

  it.each([
    ['mongodb://localhost/app', 'mongodb'],
    ['postgres://localhost/app', 'pg'],
    ['file:./data', '@electric-sql/pglite'],
  ])('the package says what to install if %s needs a missing driver', async (url, driver) => {
    const folder = await makeApplication(`without-${basename(driver)}`, [], []);
    const use = `new Tidemill({ store: '${url}' }).enqueue('x').catch(({ message }) => console.log(message));`;
    for (const said of await runBoth(folder, use)) expect(said).toContain(`npm install ${driver}\n`);
  });

  it('the package opens the store that a URL names', async () => {
    const folder = await makeApplication('by-url', ['@electric-sql/pglite'], []);
    const use = `const mill = new Tidemill({ store: 'file:./data' });
      mill.enqueue('x').then(() => mill.jobs.count()).then(console.log).then(() => mill.stop());`;
    expect(await runBoth(folder, use)).toEqual(['1\n', '2\n']);
  });

  it('metrics and traces are off without prom-client and OpenTelemetry', async () => {
    const folder = await makeApplication('unmeasured', [], []);
    const use = `const mill = new Tidemill({ store: 'memory:' });
      mill.enqueue('x').then((job) => mill.getPrometheusMetrics().then((none) => console.log(none, 'trace' in job)))
        .then(() => mill.stop());`;
    expect(await runBoth(folder, use)).toEqual(['null false\n', 'null false\n']);
  });

  it('metrics and traces work with prom-client and OpenTelemetry, in both module formats', async () => {
    const sdk = '@opentelemetry/sdk-trace-base';
    const folder = await makeApplication('measured', ['prom-client', '@opentelemetry/api', sdk], []);
    const use = `const main = async () => {
      const { trace } = await import('@opentelemetry/api');
      const { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } = await import('${sdk}');
      const exporter = new InMemorySpanExporter();
      trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
      const mill = new Tidemill({ store: 'memory:' });
      await mill.enqueue('x');
      const text = await (await mill.getPrometheusMetrics()).metrics();
      console.log(text.includes('tidemill_enqueued_total{name="x"} 1'), exporter.getFinishedSpans()[0].name);
      await mill.stop();
    };
    main();`;
    expect(await runBoth(folder, use)).toEqual(['true enqueue x\n', 'true enqueue x\n']);
  });

  it('runs a handler in a thread, in both module formats', async () => {
    const folder = await makeApplication('threads', ['piscina'], []);
    const module = `import { isMainThread } from 'node:worker_threads';
      export default ({ data }) => ({ twice: 2 * data, isMainThread });`;
    await writeFile(join(folder, 'twice.mjs'), module);
    const use = `const main = async () => {
      const { pathToFileURL } = await import('node:url');
      const mill = new Tidemill({ store: 'memory:' });
      const type = mill.job('twice', { thread: pathToFileURL('./twice.mjs') });
      await mill.start();
      const { id } = await type.enqueue(21);
      console.log(JSON.stringify(await mill.jobs.result(id)));
      await mill.stop();
    };
    main();`;
    const said = '{"twice":42,"isMainThread":false}\n';
    expect(await runBoth(folder, use)).toEqual([said, said]);
  });

  it('says what to install if a handler with a thread finds no piscina', async () => {
    const folder = await makeApplication('without-threads', [], []);
    await writeFile(join(folder, 'twice.mjs'), 'export default () => 2;');
    const use = `const main = async () => {
      const { pathToFileURL } = await import('node:url');
      const mill = new Tidemill({ store: 'memory:' });
      mill.job('twice', { thread: pathToFileURL('./twice.mjs') });
      await mill.start().catch(({ message }) => console.log(message));
      await mill.stop();
    };
    main();`;
    for (const said of await runBoth(folder, use)) expect(said).toContain('npm install piscina\n');
  });

  it('the command runs without any driver, and says which one a store needs', async () => {
    const folder = await makeApplication('command', [], []);
    const { bin: bins, version } = JSON.parse(await readFile(join(built, 'package.json'), 'utf8')) as {
      bin: { tidemill: string };
      version: string;
    };
    const file = join(folder, 'node_modules/tidemill', bins.tidemill);
    expect((await exec(file, ['--version'])).stdout).toBe(`${version}\n`);
    const asked = exec(file, ['doctor', '--store', 'postgres://localhost/app']);
    await expect(asked).rejects.toMatchObject({
      code: 2,
      stderr: expect.stringContaining('npm install pg') as string,
    });
  });

  it.each(['mjs', 'cjs'])('the package contains each source file once in its %s files', async (extension) => {
    const { dist } = pack;
    const chunks = extension === 'mjs' ? 'es/' : 'cjs/';
    const maps = (await readdir(dist, { recursive: true })).filter(
      (file) =>
        (file.endsWith(`.${extension}.map`) || (file.startsWith(chunks) && file.endsWith('.js.map'))) &&
        !file.includes('.d.'),
    );
    const sources = await Promise.all(
      maps.map(
        async (file) =>
          (JSON.parse(await readFile(join(dist, file), 'utf8')) as { sources: string[] }).sources,
      ),
    );
    expect(sources.flat().length).toBeGreaterThan(0);
    expect(sources.flat().sort()).toEqual([...new Set(sources.flat())].sort());
  });

  it('the package has one README, whose links lead somewhere without the repository', async () => {
    const [ours, theirs] = await Promise.all(
      [root, built].map((folder) => readFile(join(folder, 'README.md'), 'utf8')),
    );
    expect(relativeLinks(ours!).length).toBeGreaterThan(0);
    expect(relativeLinks(theirs!)).toEqual([]);
    for (const heading of ['# Tidemill', '## Three ways to start work', '## What Tidemill promises'])
      expect(theirs).toContain(`${heading}\n`);
    expect((await readdir(built)).sort()).toEqual([
      'LICENSE',
      'README.md',
      'SECURITY.md',
      'dist',
      'grafana',
      'package.json',
      'privileges',
    ]);
    // Packing puts the original back.
    expect(await readFile(join(pack.dist, '../README.md'), 'utf8')).toBe(ours);
  });
});

/** Links, pictures and sources of pictures that name no host. */
function relativeLinks(text: string): readonly string[] {
  const targets = text.matchAll(/\]\(([^)]*)\)|\b(?:src|srcset|href)="([^"]*)"/gu);
  return [...targets]
    .map(([, link, source]) => link ?? source ?? '')
    .filter((link) => !/^(?:[a-z]+:|#)/u.test(link));
}

describe('the weight of the package', () => {
  it('the package is below 765 kB packed and 3.1 MB unpacked', () => {
    expect(pack.size).toBeLessThan(765_000);
    expect(pack.unpackedSize).toBeLessThan(3_100_000);
  });

  it.each(['es', 'cjs'])('no chunk of the %s format waits for one that waits for it', async (format) => {
    const folder = join(built, 'dist', format);
    const imports = new Map<string, readonly string[]>();
    for (const file of (await readdir(folder)).filter((name) => name.endsWith('.js'))) {
      const text = await readFile(join(folder, file), 'utf8');
      // What is loaded on first use follows an arrow, or is in parentheses.
      const found = text.matchAll(/(?:from|import|(?<!=>)require\()\s*["'`]\.\/([^"'`]+)["'`]/gu);
      imports.set(
        file,
        [...found].map(([, name]) => name!),
      );
    }
    expect(imports.size).toBeGreaterThan(50);
    const done = new Set<string>();
    const visit = (file: string, path: readonly string[]): void => {
      expect(path).not.toContain(file);
      if (done.has(file)) return;
      for (const name of imports.get(file) ?? []) visit(name, [...path, file]);
      done.add(file);
    };
    for (const file of imports.keys()) visit(file, []);
  });

  it('no chunk imports the command, which would run it', async () => {
    for (const format of ['es', 'cjs']) {
      const folder = join(built, 'dist', format);
      for (const file of await readdir(folder))
        if (file.endsWith('.js')) expect(await readFile(join(folder, file), 'utf8')).not.toContain('cli.mjs');
    }
  });

  it('the package includes no maps, and no references to any', async () => {
    const files = await readdir(join(built, 'dist'), { recursive: true });
    expect(files.filter((file) => file.endsWith('.map'))).toEqual([]);
    const texts = await Promise.all(
      files
        .filter((file) => /\.[cm]?[jt]s$/u.test(file))
        .map((file) => readFile(join(built, 'dist', file), 'utf8')),
    );
    expect(texts.filter((text) => text.includes('sourceMappingURL'))).toEqual([]);
  });

  /** The bytes of our files that Node loads to run these lines, by the engine's own record of scripts. */
  async function loaded(folder: string, type: string, lines: string): Promise<Record<string, number>> {
    const record = await mkdtemp(join(temporary, 'loaded-'));
    await exec(process.execPath, [`--input-type=${type}`, '--eval', lines], {
      cwd: folder,
      env: { ...process.env, NODE_V8_COVERAGE: record },
    });
    const ours = pathToFileURL(join(await realpath(folder), 'node_modules/tidemill/dist/')).href;
    const urls = new Set<string>();
    for (const file of await readdir(record)) {
      const { result } = JSON.parse(await readFile(join(record, file), 'utf8')) as {
        result: { url: string }[];
      };
      for (const { url } of result) if (url.startsWith(ours)) urls.add(url);
    }
    const sizes = [...urls].map(
      async (url) => [url.slice(ours.length), (await stat(fileURLToPath(url))).size] as const,
    );
    return Object.fromEntries(await Promise.all(sizes));
  }

  const total = (sizes: Record<string, number>): number =>
    Object.values(sizes).reduce((sum, size) => sum + size, 0);

  const enqueue = (store: string): string => `
    const mill = new Tidemill({ store: ${store}, logger: false, tracing: false });
    mill.enqueue('x').then(() => mill.stop());`;

  const loads = {
    module: (entry: string, name: string) => `import { ${name} } from '${entry}';`,
    commonjs: (entry: string, name: string) => `const { ${name} } = require('${entry}');`,
  };

  it.each(['module', 'commonjs'] as const)('importing tidemill loads less than 100 kB (%s)', async (type) => {
    const folder = await makeApplication(`front-door-${type}`, [], []);
    const sizes = await loaded(folder, type, loads[type]('tidemill', 'Tidemill'));
    expect(Object.keys(sizes).length).toBeGreaterThan(0);
    expect(total(sizes), JSON.stringify(sizes)).toBeLessThan(100_000);
  });

  it.each([
    ['memory', [], 'memory()', 140_000],
    ['postgres', ['pg'], `postgres({ url: '${inject('postgresUrl')}', schema: 'tidemill_weight' })`, 219_000],
    ['mongodb', ['mongodb'], `mongodb({ uri: '${freshUri()}' })`, 147_000],
  ])(
    'a producer on %s that only enqueues loads no more than its limit',
    async (name, drivers, store, limit) => {
      const folder = await makeApplication(`producer-${name}`, drivers, []);
      for (const type of ['module', 'commonjs'] as const) {
        const lines = [
          loads[type]('tidemill', 'Tidemill'),
          loads[type](`tidemill/${name}`, name),
          enqueue(store),
        ];
        const sizes = await loaded(folder, type, lines.join('\n'));
        expect(total(sizes), JSON.stringify(sizes)).toBeLessThan(limit);
      }
    },
  );
});
