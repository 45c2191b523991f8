import { MongoBulkWriteError, MongoNetworkError, MongoServerError } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { isTransient, classifyError } from '../../src/mongodb/errors.js';

const wrapped = (cause: Error): MongoBulkWriteError =>
  new MongoBulkWriteError(cause, { insertedCount: 0, insertedIds: {} } as never);

describe('errors of a bulk write', () => {
  it('count as what they wrap: a connection that closed may have stored it all the same', () => {
    const error = wrapped(new MongoNetworkError('connection closed'));
    expect(isTransient(error)).toBe(true);
    expect(classifyError('enqueue', error, true)).toMatchObject({ transient: true, outcomeUnknown: true });
  });

  it('do not pass where what they wrap does not', () => {
    expect(isTransient(wrapped(new MongoServerError({ message: 'bad value', code: 2 })))).toBe(false);
  });
});
