import type { ChildProcess } from 'node:child_process';
import { expect, it, onTestFinished } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { aMill } from '../support/mills.js';
import { forkScript } from '../support/scripts.js';
import { freshUri } from '../support/stores.js';

export type Answers = readonly (
  { readonly id: string; readonly outcome: string } | { readonly error: string }
)[];

const PROCESSES = 4;
const CALLS = 250;

const heard = <T>(child: ChildProcess): Promise<T> =>
  new Promise((resolve, reject) => {
    child.once('message', (message) => resolve(message as T));
    child.once('exit', (code) => reject(new Error(`a producer ended with ${String(code)}`)));
  });

async function aProducer(uri: string): Promise<ChildProcess> {
  const script = new URL('producer.ts', import.meta.url);
  const child = forkScript(script, [uri, String(CALLS)], { stdio: 'inherit' });
  onTestFinished(() => void child.kill());
  await heard(child);
  return child;
}

it('a thousand concurrent enqueues of one unique key from four processes create one job', async () => {
  const uri = freshUri();
  const producers = await Promise.all(Array.from({ length: PROCESSES }, () => aProducer(uri)));
  const mill = aMill(mongodb({ uri }));
  for (const key of ['first', 'second', 'third']) {
    const answers = producers.map((child) => heard<Answers>(child));
    for (const child of producers) child.send(key);
    const all = (await Promise.all(answers)).flat();
    expect(all.filter((one) => 'error' in one)).toEqual([]);
    expect(all).toHaveLength(PROCESSES * CALLS);
    const { items } = await mill.jobs.find({ name: 'sync', uniqueKey: key });
    expect(items).toHaveLength(1);
    expect(new Set(all.map((one) => ('id' in one ? one.id : '')))).toEqual(new Set([items[0]?.id]));
    expect(all.filter((one) => 'outcome' in one && one.outcome === 'created')).toHaveLength(1);
  }
});
