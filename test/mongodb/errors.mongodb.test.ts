import { MongoBulkWriteError, MongoNetworkError, MongoServerError } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { classifyError, isTransient, isUnstorable } from '../../src/mongodb/errors.js';

const wrapped = (cause: Error): MongoBulkWriteError =>
  new MongoBulkWriteError(cause, { insertedCount: 0, insertedIds: {} } as never);

describe('MongoDB bulk write errors', () => {
  it('an error of the operating system may be retried, bare or inside a bulk write, and refuses no value', () => {
    const broken = Object.assign(new Error('write EPIPE'), { code: 'EPIPE', errno: -32, syscall: 'write' });
    for (const error of [broken, wrapped(broken)]) {
      expect(isTransient(error)).toBe(true);
      expect(isUnstorable(error)).toBe(false);
    }
    expect(classifyError('enqueue', wrapped(broken), true)).toMatchObject({
      transient: true,
      outcomeUnknown: true,
    });
  });

  it('a bulk write error that wraps a closed connection is transient with an unknown outcome', () => {
    const error = wrapped(new MongoNetworkError('connection closed'));
    expect(isTransient(error)).toBe(true);
    expect(classifyError('enqueue', error, true)).toMatchObject({ transient: true, outcomeUnknown: true });
  });

  it('a bulk write error that wraps a permanent error is not transient', () => {
    expect(isTransient(wrapped(new MongoServerError({ message: 'bad value', code: 2 })))).toBe(false);
  });
});
