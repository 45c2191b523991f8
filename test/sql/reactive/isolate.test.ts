import { describe, expect, it } from 'vitest';
import type { Choked } from '../../../src/core/batches/bisect.js';
import { isolated } from '../../../src/sql/reactive/plan/isolate.js';
import { Suspects } from '../../../src/sql/reactive/plan/suspects.js';

const failure = (code: string): Error => Object.assign(new Error(`code ${code}`), { code });
const keys = (count: number): string[] => Array.from({ length: count }, (_, at) => String(at));

/** A server that fails by what it is asked; time passes only when a test says so. */
class Scene {
  now = 0;
  asked = 0;
  fails: (some: readonly string[]) => Error | undefined = () => undefined;
  readonly #suspects = new Suspects({ monotonic: () => this.now });

  run(some: readonly string[]): Promise<readonly Choked<string>[]> {
    return isolated(this.#suspects, 'task', some, (asked) => {
      this.asked += 1;
      const error = this.fails(asked);
      return error === undefined ? Promise.resolve(true) : Promise.reject(error);
    });
  }
}

const on = (bad: readonly string[], code: string) => (some: readonly string[]) =>
  some.some((key) => bad.includes(key)) ? failure(code) : undefined;

describe('a row to blame is found', () => {
  it('at once, where the error will not pass', async () => {
    const scene = new Scene();
    scene.fails = on(['7', '500'], '22012');
    const choked = await scene.run(keys(1_000));
    expect(choked.map(({ item, blocked }) => [item, blocked]).sort()).toEqual([
      ['500', false],
      ['7', false],
    ]);
    expect(scene.asked).toBeLessThan(60);
  });

  it('and waits where the error may pass, until it has lasted', async () => {
    const scene = new Scene();
    scene.fails = on(['7'], 'XX000');
    for (let second = 0; second < 5; second += 1) {
      scene.now = second * 1_000;
      expect(await scene.run(keys(10))).toMatchObject([{ item: '7', blocked: true }]);
    }
    scene.now = 5_000;
    expect(await scene.run(keys(10))).toMatchObject([{ item: '7', reason: 'code XX000', blocked: false }]);
    scene.fails = () => undefined;
    expect(await scene.run(keys(10))).toEqual([]);
    scene.fails = on(['7'], 'XX000');
    expect(await scene.run(['7'])).toMatchObject([{ blocked: true }]);
  });

  it('once, where it was given twice', async () => {
    const scene = new Scene();
    scene.fails = on(['7'], 'XX000');
    expect(await scene.run(['7', '8', '7'])).toHaveLength(1);
  });

  it('also where its error looks like one of the connection, after several tries of the batch', async () => {
    const scene = new Scene();
    scene.fails = on(['7'], '08006');
    for (let second = 0; second < 5; second += 1) {
      scene.now = second * 1_000;
      await expect(scene.run(keys(10))).rejects.toThrow('08006');
    }
    scene.now = 5_000;
    expect(await scene.run(keys(10))).toMatchObject([{ item: '7', blocked: true }]);
  });
});

describe('no row is blamed', () => {
  it.each(['08006', '57P01', '53300', 'ECONNRESET', 'EPIPE'])(
    'for an outage, however long: %s',
    async (code) => {
      const scene = new Scene();
      scene.fails = () => failure(code);
      for (let tries = 0; tries < 20; tries += 1) {
        scene.now += 1_000;
        await expect(scene.run(['7'])).rejects.toMatchObject({ code });
      }
      // It ends between a statement and the next one.
      let times = 1;
      scene.fails = () => ((times -= 1) < 0 ? undefined : failure(code));
      expect(await scene.run(['7'])).toEqual([]);
    },
  );

  it('for a deadlock: the whole batch is tried again', async () => {
    const scene = new Scene();
    scene.fails = (some) => (some.length > 0 ? failure('40P01') : undefined);
    for (let tries = 0; tries < 4; tries += 1) {
      scene.now += 2_000;
      await expect(scene.run(keys(10))).rejects.toMatchObject({ code: '40P01' });
    }
    expect(scene.asked).toBe(4);
  });

  it('where the statement fails without any row', async () => {
    const scene = new Scene();
    scene.fails = () => failure('42703');
    await expect(scene.run(keys(1_000))).rejects.toThrow('42703');
    expect(scene.asked).toBe(2);
  });

  it('where none works, in batches of any size: each is tried again, and then the task is refused', async () => {
    const scene = new Scene();
    scene.fails = (some) => (some.length > 0 ? failure('53100') : undefined);
    for (let second = 0; second < 5; second += 1) {
      scene.now = second * 1_000;
      scene.asked = 0;
      await expect(scene.run(keys(1_000 - second))).rejects.toMatchObject({ code: '53100' });
      expect(scene.asked).toBeLessThan(100);
    }
    scene.now = 5_000;
    await expect(scene.run(keys(40))).rejects.toMatchObject({ code: 'STORE', transient: false });
  });
});
