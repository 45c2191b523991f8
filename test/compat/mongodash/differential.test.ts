import { beforeAll, describe, expect, it } from 'vitest';
import { fetchPackages } from '../../../scripts/fetch.mjs';
import { runOn, type Pair } from '../../support/originals.js';
import { freshUri } from '../../support/stores.js';

const PAIR: Pair = { entry: 'tidemill/compat/mongodash', original: 'mongodash/dist/lib/index.js' };
const script = new URL('script.ts', import.meta.url);
const differences = new URL('differences.ts', import.meta.url);

interface Outcomes extends Record<string, unknown> {
  readonly tasks: readonly { readonly task: string; readonly succeeded: boolean }[];
}

let original: Outcomes;
let ours: Outcomes;

beforeAll(async () => {
  await fetchPackages('test/originals');
  const run = async (which: 'original' | 'ours'): Promise<Outcomes> =>
    (await runOn(which, script, PAIR, [freshUri()])) as Outcomes;
  [original, ours] = await Promise.all([run('original'), run('ours')]);
}, 600_000);

/** A skipped run is no success here. */
const SKIPPED = ['leaves', 'skips'];
const withoutSkipped = ({ tasks, ...others }: Outcomes): unknown => ({
  ...others,
  tasks: tasks.map(({ succeeded, ...task }) => (SKIPPED.includes(task.task) ? task : { ...task, succeeded })),
});

describe('the same calls on mongodash and on its compat entry', () => {
  it('have the same outcomes, apart from a difference that the page lists', () => {
    expect(withoutSkipped(ours)).toEqual(withoutSkipped(original));
    const succeeded = ({ tasks }: Outcomes): readonly boolean[] =>
      tasks.filter(({ task }) => SKIPPED.includes(task)).map((one) => one.succeeded);
    expect(succeeded(original)).toEqual([true, true]);
    expect(succeeded(ours)).toEqual([false, false]);
  });

  it('differ where the page says so', async () => {
    const [there, here] = await Promise.all([
      runOn('original', differences, PAIR, [freshUri()]),
      runOn('ours', differences, PAIR, [freshUri()]),
    ]);
    expect(there).toEqual({
      'comes back with the same values': 1,
      'left the filter before its task started': 'called',
      'is defined after the start': 'refused',
    });
    expect(here).toEqual({
      'comes back with the same values': 2,
      'left the filter before its task started': 'not called',
      'is defined after the start': 'accepted',
    });
  });
});
