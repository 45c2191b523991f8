import { describe, expect, it, vi } from 'vitest';
import { Emitter } from '../../src/core/emitter.js';
import { gate } from '../support/mills.js';

interface Events {
  tick: { readonly n: number };
  error: { readonly error: Error };
}

function anEmitter() {
  const faults: [unknown, string][] = [];
  const emitter = new Emitter<Events>((error, event) => faults.push([error, event]));
  return { emitter, faults };
}

describe('event emitter', () => {
  it('calls every listener with the payload, in the order they were added', () => {
    const { emitter } = anEmitter();
    const seen: string[] = [];
    emitter.on('tick', ({ n }) => seen.push(`first ${String(n)}`));
    emitter.on('tick', ({ n }) => seen.push(`second ${String(n)}`));
    emitter.emit('tick', { n: 1 });
    expect(seen).toEqual(['first 1', 'second 1']);
  });

  it('calls a listener that was added twice once, and not at all after it was removed', () => {
    const { emitter } = anEmitter();
    const listener = vi.fn();
    emitter.on('tick', listener);
    emitter.on('tick', listener);
    emitter.emit('tick', { n: 1 });
    expect(listener).toHaveBeenCalledTimes(1);
    emitter.off('tick', listener);
    emitter.off('tick', listener);
    emitter.emit('tick', { n: 2 });
    expect(listener).toHaveBeenCalledTimes(1);
    expect(emitter.has('tick')).toBe(false);
  });

  it('ignores events without a listener, including errors', () => {
    const { emitter, faults } = anEmitter();
    expect(emitter.has('error')).toBe(false);
    expect(() => emitter.emit('error', { error: new Error('alone') })).not.toThrow();
    expect(faults).toEqual([]);
  });

  it('reports a listener that throws, and still calls the others', () => {
    const { emitter, faults } = anEmitter();
    const thrown = new Error('bad listener');
    const after = vi.fn();
    emitter.on('tick', () => {
      throw thrown;
    });
    emitter.on('tick', after);
    expect(() => emitter.emit('tick', { n: 1 })).not.toThrow();
    expect(after).toHaveBeenCalledWith({ n: 1 });
    expect(faults).toEqual([[thrown, 'tick']]);
  });

  it('reports a listener whose promise rejects, and leaves no rejection unhandled', async () => {
    const unhandled = vi.fn();
    process.on('unhandledRejection', unhandled);
    const reported = gate<[unknown, string]>();
    const emitter = new Emitter<Events>((error, event) => reported.open([error, event]));
    const thrown = new Error('bad promise');
    emitter.on('tick', async () => {
      await Promise.resolve();
      throw thrown;
    });
    emitter.emit('tick', { n: 1 });
    expect(await reported.promise).toEqual([thrown, 'tick']);
    await new Promise((resolve) => setImmediate(resolve));
    process.off('unhandledRejection', unhandled);
    expect(unhandled).not.toHaveBeenCalled();
  });

  it('lets a listener add and remove listeners while an event is emitted', () => {
    const { emitter } = anEmitter();
    const late = vi.fn();
    const once = vi.fn(() => {
      emitter.off('tick', once);
      emitter.on('tick', late);
    });
    emitter.on('tick', once);
    emitter.emit('tick', { n: 1 });
    expect(late).not.toHaveBeenCalled();
    emitter.emit('tick', { n: 2 });
    expect(once).toHaveBeenCalledTimes(1);
    expect(late).toHaveBeenCalledTimes(1);
  });
});
