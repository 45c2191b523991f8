import type { Tidemill } from '../../src/index.js';

/** The values of a scrape, by name and labels as they appear in the text. */
export async function scraped(
  mill: Pick<Tidemill, 'getPrometheusMetrics'>,
): Promise<ReadonlyMap<string, number>> {
  const registry = await mill.getPrometheusMetrics();
  if (registry === null) throw new Error('there are no metrics');
  const lines = (await registry.metrics()).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => {
      const space = line.lastIndexOf(' ');
      return [line.slice(0, space), Number(line.slice(space + 1))];
    }),
  );
}

/** The values whose name and labels begin with the prefix, by the rest. */
export const under = (values: ReadonlyMap<string, number>, prefix: string): Record<string, number> =>
  Object.fromEntries(
    [...values].flatMap(([key, value]) =>
      key.startsWith(prefix) ? [[key.slice(prefix.length), value]] : [],
    ),
  );
