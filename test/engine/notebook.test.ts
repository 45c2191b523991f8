import { describe, expect, it } from 'vitest';
import { StoreError } from '../../src/core/errors.js';
import { Notebook } from '../../src/engine/record/notebook.js';
import { leaseOf, type Note } from '../../src/store/port.js';
import { virtualClock } from '../../src/testing/index.js';
import { gate, until } from '../support/mills.js';
import { aClaimed } from './support.js';

function aNotebook(write: (notes: readonly Note[]) => Promise<void> = () => Promise.resolve()) {
  const clock = virtualClock();
  const written: Note[] = [];
  const errors: unknown[] = [];
  const notebook = new Notebook(
    clock,
    async (notes) => {
      await write(notes);
      written.push(...notes);
    },
    (error) => errors.push(error),
  );
  return { clock, written, errors, notebook };
}

const [free, held] = [() => false, () => true];
const line = (message: string): { log: { message: string } } => ({ log: { message } });

describe('progress and log lines', () => {
  it('writes progress every half second, only the latest value', async () => {
    const { clock, notebook, written } = aNotebook();
    const lease = leaseOf(aClaimed());
    notebook.add(lease, { progress: { value: 1 } }, free);
    notebook.add(lease, { progress: { value: 2 } }, free);
    await clock.advance(499);
    expect(written).toEqual([]);
    await clock.advance(1);
    expect(written).toMatchObject([{ lease, progress: { value: 2 } }]);
  });

  it('holds notes of an attempt that completes in a transaction, and keeps its last 100 lines', async () => {
    const { clock, notebook, written } = aNotebook();
    const lease = leaseOf(aClaimed());
    for (let n = 0; n < 1_000; n += 1) notebook.add(lease, line(String(n)), held);
    await clock.advance('1m');
    expect(written).toEqual([]);
    const extra = await notebook.take(lease);
    expect(extra?.logs).toHaveLength(100);
    expect(extra?.logs?.at(-1)?.message).toBe('999');
  });

  it('holds notes from the moment the attempt begins to complete', async () => {
    const { clock, notebook, written } = aNotebook();
    const lease = leaseOf(aClaimed());
    let completing = false;
    notebook.add(lease, line('before'), () => completing);
    completing = true;
    await clock.advance('1m');
    expect(written).toEqual([]);
    expect((await notebook.take(lease))?.logs).toHaveLength(1);
  });

  it('writes notes one after the other, and a settlement waits for a write under way', async () => {
    const go = gate();
    let calls = 0;
    const { clock, notebook, written } = aNotebook(() => {
      calls += 1;
      return calls === 1 ? go.promise : Promise.resolve();
    });
    const lease = leaseOf(aClaimed());
    notebook.add(lease, { progress: { value: 'old' } }, free);
    void clock.advance(500);
    await until('the first write is under way', () => calls === 1);
    notebook.add(lease, { progress: { value: 'new' } }, free);
    const taken = notebook.take(lease);
    let isTaken = false;
    void taken.then(() => (isTaken = true));
    await new Promise((resolve) => setImmediate(resolve));
    expect([isTaken, calls]).toEqual([false, 1]);
    go.open();
    expect(await taken).toEqual({ progress: { value: 'new' } });
    expect(written.map(({ progress }) => progress?.value)).toEqual(['old']);
  });

  it('writes the notes of other jobs if the database refuses those of one', async () => {
    const { clock, notebook, written, errors } = aNotebook((notes) =>
      notes.some(({ lease }) => lease.id === 'poison')
        ? Promise.reject(new StoreError('note: refused'))
        : Promise.resolve(),
    );
    for (const id of ['one', 'poison', 'two']) notebook.add(leaseOf(aClaimed({ id })), line('said'), free);
    await clock.advance('1s');
    expect(written.map(({ lease }) => lease.id)).toEqual(['one', 'two']);
    expect(errors).toHaveLength(1);
  });
});
