import { MongoBulkWriteError, MongoNetworkError, MongoServerError } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { isTransient, classifyError } from '../../src/mongodb/errors.js';

const wrapped = (cause: Error): MongoBulkWriteError =>
  new MongoBulkWriteError(cause, { insertedCount: 0, insertedIds: {} } as never);

describe('MongoDB bulk write errors', () => {
  it('a bulk write error that wraps a closed connection is transient with an unknown outcome', () => {
    const error = wrapped(new MongoNetworkError('connection closed'));
    expect(isTransient(error)).toBe(true);
    expect(classifyError('enqueue', error, true)).toMatchObject({ transient: true, outcomeUnknown: true });
  });

  it('a bulk write error that wraps a permanent error is not transient', () => {
    expect(isTransient(wrapped(new MongoServerError({ message: 'bad value', code: 2 })))).toBe(false);
  });
});
