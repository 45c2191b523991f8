/** Runs in a thread: does what its payload asks for. */
import { createRequire } from 'node:module';
import { isMainThread, threadId } from 'node:worker_threads';

// The sources are TypeScript, which `require` reads in the threads of a test.
/** @typedef {import('../../../../src/index.js').JobContext<{ do: string }>} Job */

/** @type {typeof import('../../../../src/index.js')} */
const { FatalError } = createRequire(import.meta.url)('../../../../src/core/errors.ts');

class ObjectId {
  id = 1;
}
class Decimal128 {
  bytes = 1;
}
class Long {
  low = 1;
}

/** @type {Record<string, (job: Job) => unknown>} */
const ends = {
  tell: ({ id, attempt, data, progress, log }) => {
    progress({ half: true });
    log('from the thread', { threadId });
    return { id, attempt, data, isMainThread };
  },
  spin: () => {
    for (;;) Math.random();
  },
  heed: async ({ signal, progress }) => {
    progress('began');
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
    throw signal.reason;
  },
  fail: () => {
    throw Object.assign(new RangeError('too wide'), { code: 'E_WIDE', retryAfter: '2h' });
  },
  fatal: () => {
    throw new FatalError('never again');
  },
  defer: ({ defer }) => defer('3h'),
  complete: ({ complete }) => complete({ transaction: {} }),
  exit: () => process.exit(3),
  throw: async () => {
    setImmediate(() => {
      throw new Error('thrown where nobody catches it');
    });
    await new Promise(() => undefined);
  },
  throwLater: () => {
    setImmediate(() => {
      throw new Error('thrown after the job');
    });
  },
  // Its result has been sent when it exits, and the pool has not heard that the thread is free.
  exitAtOnce: () => {
    void Promise.resolve()
      .then(() => undefined)
      .then(() => process.exit(3));
    return 'last words';
  },
  function: () => ({ deep: [() => 1] }),
  class: () => ({ ids: [new ObjectId()] }),
  progressClass: ({ progress }) => progress({ at: new Decimal128() }),
  logClass: ({ log }) => log('got it', { at: new Long() }),
  keep: () => ({ at: new Date(0), bytes: new Uint8Array([1, 2]).length, list: [null, { a: 1 }] }),
};

/** @param {Job} job */
export default (job) => ends[job.data.do]?.(job);
