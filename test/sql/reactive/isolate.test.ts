import { describe, expect, it } from 'vitest';
import type { Choked } from '../../../src/core/batches/bisect.js';
import { isolated } from '../../../src/sql/reactive/plan/isolate.js';
import { Suspects } from '../../../src/sql/reactive/plan/suspects.js';

const failure = (code: string): Error => Object.assign(new Error(`code ${code}`), { code });
const keys = (count: number): string[] => Array.from({ length: count }, (_, at) => String(at));

/** A server that fails depending on the statement; time passes only when a test says so. */
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

describe('isolating a bad row', () => {
  it('isolates bad rows at once if the error is permanent', async () => {
    const scene = new Scene();
    scene.fails = on(['7', '500'], '22012');
    const choked = await scene.run(keys(1_000));
    expect(choked.map(({ item, blocked }) => [item, blocked]).sort()).toEqual([
      ['500', false],
      ['7', false],
    ]);
    expect(scene.asked).toBeLessThan(60);
  });

  it('treats a row with a transient error as blocked until the error has lasted five seconds', async () => {
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

  it('isolates a row that was given twice once', async () => {
    const scene = new Scene();
    scene.fails = on(['7'], 'XX000');
    expect(await scene.run(['7', '8', '7'])).toHaveLength(1);
  });

  it('isolates a row whose error looks like a connection error after several tries of the batch', async () => {
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

describe("errors that are no row's fault", () => {
  it.each(['08006', '57P01', '53300', 'ECONNRESET', 'EPIPE'])(
    'blames no row for an outage, however long: %s',
    async (code) => {
      const scene = new Scene();
      scene.fails = () => failure(code);
      for (let tries = 0; tries < 20; tries += 1) {
        scene.now += 1_000;
        await expect(scene.run(['7'])).rejects.toMatchObject({ code });
      }
      // It ends between one statement and the next.
      let times = 1;
      scene.fails = () => ((times -= 1) < 0 ? undefined : failure(code));
      expect(await scene.run(['7'])).toEqual([]);
    },
  );

  it('blames no row for a deadlock, and retries the whole batch', async () => {
    const scene = new Scene();
    scene.fails = (some) => (some.length > 0 ? failure('40P01') : undefined);
    for (let tries = 0; tries < 4; tries += 1) {
      scene.now += 2_000;
      await expect(scene.run(keys(10))).rejects.toMatchObject({ code: '40P01' });
    }
    expect(scene.asked).toBe(4);
  });

  it('blames no row if the statement fails without any row', async () => {
    const scene = new Scene();
    scene.fails = () => failure('42703');
    await expect(scene.run(keys(1_000))).rejects.toThrow('42703');
    expect(scene.asked).toBe(2);
  });

  it('blames no row if every row fails, and then rejects the task as a whole', async () => {
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
