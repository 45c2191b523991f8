import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CONTENDERS, load } from '../contenders/contender.js';
import { loadReactive, REACTIVE } from '../contenders/reactive/contender.js';
import type { Bench, Row } from './bench.js';
import { round } from './stats.js';

const HERE = dirname(dirname(fileURLToPath(import.meta.url)));

/** One table per section, in the order of measurement. */
export function tables(rows: readonly Row[]): string {
  const sections = [...new Set(rows.map((row) => row.section))];
  return sections
    .map((section) =>
      table(
        section,
        rows.filter((row) => row.section === section),
      ),
    )
    .join('\n\n');
}

function table(section: string, rows: readonly Row[]): string {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row.figures)))].filter((column) =>
    rows.some((row) => (row.figures[column] ?? '') !== ''),
  );
  const lines = rows.map((row) => [
    row.contender,
    row.variant,
    ...columns.map((column) => shown(row.figures[column])),
  ]);
  const head = ['', 'variant', ...columns];
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  return [`### ${section}`, '', line(head), line(head.map(() => '---')), ...lines.map(line)].join('\n');
}

function shown(value: number | string | null | undefined): string {
  if (value === null) return 'has none';
  return typeof value === 'number' ? value.toLocaleString('en-US') : (value ?? '');
}

const versionIn = (folder: string, name: string): string | undefined => {
  const file = join(folder, 'node_modules', name, 'package.json');
  return existsSync(file)
    ? (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version
    : undefined;
};

/** What the results contain about a contender, whatever its database. */
interface Described {
  readonly title: string;
  readonly variants: object;
  readonly packages: readonly string[];
}

export async function described<Name extends string>(
  names: readonly Name[],
  loadOne: (name: Name) => Promise<Described>,
): Promise<Record<string, unknown>> {
  const entries = names.map(async (name) => {
    const { title, variants, packages } = await loadOne(name);
    const versions = packages.map((one) => [one, versionIn(HERE, one) ?? 'not installed']);
    return [name, { title, versions: Object.fromEntries(versions) as unknown, settings: variants }];
  });
  return Object.fromEntries(await Promise.all(entries)) as Record<string, unknown>;
}

/** The version of a package installed in the repository's root. */
export const rootVersion = (name: string): string | undefined => versionIn(dirname(HERE), name);

const reactiveSettings = async (): Promise<Record<string, unknown>> =>
  Object.fromEntries(
    await Promise.all(REACTIVE.map(async (name) => [name, (await loadReactive(name)).variants] as const)),
  );

export const machine = (): object => ({
  cores: cpus().length,
  cpu: cpus()[0]?.model ?? '',
  memoryGb: round(totalmem() / 2 ** 30),
  platform: process.platform,
});

/** What was measured, on what, and how. */
export async function circumstances(bench: Bench): Promise<Record<string, unknown>> {
  const { version } = await bench.client.db('admin').command({ buildInfo: 1 });
  const pulse = join(HERE, 'node_modules', '@pulsecron', 'pulse');
  return {
    machine: machine(),
    versions: {
      node: process.version,
      mongod: String(version),
      driver: rootVersion('mongodb'),
      'driver of pulse': versionIn(pulse, 'mongodb'),
    },
    server: 'replica set of one node, data on disk, journal on, WiredTiger cache 1 GB',
    writeConcern: 'majority, for everybody, set on the client',
    rounds: bench.rounds,
    quick: bench.quick,
    contenders: await described(CONTENDERS, load),
    reactive: await reactiveSettings(),
  };
}

/** Quick and partial runs are for trying out: they do not overwrite published figures. */
export function write({ complete }: Pick<Bench, 'complete'>, results: object, suffix = ''): string {
  const folder = join(HERE, 'results', ...(complete ? [] : ['tmp']));
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `${new Date().toISOString().slice(0, 10)}${suffix}.json`);
  writeFileSync(file, `${JSON.stringify(results, null, 1)}\n`);
  return file;
}

/** Writes the figures of a program that runs by itself, with the machine that they are from. Returns the file. */
export const record = (name: string, figures: object, quick = false): string =>
  write(
    { complete: !quick },
    { ended: new Date(), node: process.version, machine: machine(), ...figures },
    `-${name}`,
  );
