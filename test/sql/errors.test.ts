import { expect, it } from 'vitest';
import { run } from '../../src/sql/connection/errors.js';

const failing = (code: string | undefined): (() => Promise<never>) => {
  return () => Promise.reject(Object.assign(new Error('refused'), { code }));
};

it.each([
  ['a deadlock', '40P01', false],
  ['a serialization failure', '40001', false],
  ['a lock that was not had in time', '55P03', false],
  ['a cancelled statement', '57014', false],
  ['a server that shuts down', '57P01', true],
  ['a connection that broke', undefined, true],
])('says whether a write may have happened after %s', async (_what, code, outcomeUnknown) => {
  await expect(run('enqueue', failing(code), true)).rejects.toMatchObject({
    transient: true,
    outcomeUnknown,
  });
});
