import { describe, expect, it } from 'vitest';
import { defineJob, OptionError } from '../../../src/index.js';
import { memory } from '../../../src/memory/index.js';
import { virtualClock } from '../../../src/testing/index.js';
import { aMill } from '../../support/mills.js';
import { aSchema, dateSchema, emailSchema, Issue } from './schemas.js';

const once = { type: 'fixed', interval: 1, maxAttempts: 1 } as const;
const sendEmail = defineJob('send-email', { schema: emailSchema });

describe('payloads that do not match the schema', () => {
  const wrong = { to: 5 } as unknown as { to: string };

  it('enqueue, now and schedule reject a payload that does not match, and write nothing', async () => {
    const mill = aMill(memory());
    const message = 'enqueue: data does not fit the schema: to: expected a string.';
    await expect(mill.enqueue(sendEmail, wrong)).rejects.toThrow(OptionError);
    await expect(mill.enqueue(sendEmail, wrong)).rejects.toThrow(message);
    await expect(mill.now(sendEmail, wrong)).rejects.toThrow(message);
    await expect(mill.schedule('@daily', sendEmail, wrong)).rejects.toThrow('to: expected a string');
    expect(await mill.jobs.count()).toBe(0);
  });

  it('enqueue by name rejects a payload that does not match the schema of a local handler', async () => {
    const mill = aMill(memory());
    const type = mill.job('send-email', { schema: emailSchema }, () => 1);
    await expect(mill.enqueue('send-email', wrong)).rejects.toThrow('to: expected a string');
    await expect(type.enqueue(wrong)).rejects.toThrow('to: expected a string');
    await expect(type.schedule('@daily', wrong)).rejects.toThrow('to: expected a string');
    await expect(type.enqueueMany([{ data: { to: 'ada' } }, { data: wrong }])).rejects.toThrow(
      'enqueueMany[1]: data does not fit the schema: to: expected a string',
    );
    await expect(mill.enqueueMany([{ name: 'other' }, { name: 'send-email', data: wrong }])).rejects.toThrow(
      'enqueueMany[1]: data does not fit',
    );
    expect(await mill.jobs.count()).toBe(0);
  });

  it('an attempt with a payload that does not match fails before its handler is called', async () => {
    const clock = virtualClock('2025-01-01');
    const mill = aMill(memory({ clock }));
    // Enqueued by a caller that does not know the schema.
    const { id } = await mill.enqueue('send-email', { to: 5 });
    let called = false;
    mill.job('send-email', { schema: emailSchema, retryPolicy: once }, () => {
      called = true;
    });
    await mill.start();
    await clock.advance('1s');
    expect(called).toBe(false);
    expect(await mill.jobs.get(id)).toMatchObject({
      status: 'failed',
      failCount: 1,
      failReason: 'job "send-email": data does not fit the schema: to: expected a string.',
    });
  });

  it('the error lists all issues of a payload, with deep paths', async () => {
    const mill = aMill(memory());
    const schema = {
      '~standard': {
        version: 1 as const,
        vendor: 'test',
        validate: () => ({
          issues: [
            { message: 'too short', path: ['users', 0, { key: 'name' }] },
            { message: 'odd as a whole' },
            { message: 'also', path: [] },
          ],
        }),
      },
    };
    await expect(mill.enqueue(defineJob('a', { schema }), {})).rejects.toThrow(
      'data does not fit the schema: users.0.name: too short; odd as a whole; also.',
    );
  });

  it('enqueue waits for an asynchronous schema', async () => {
    const mill = aMill(memory());
    const slow = aSchema<unknown>(async () => {
      await new Promise((resolve) => setImmediate(resolve));
      throw new Issue('late, but no');
    });
    await expect(mill.enqueue(defineJob('a', { schema: slow }), {})).rejects.toThrow('late, but no');
    expect(await mill.jobs.count()).toBe(0);
  });

  it('enqueue rejects if the schema itself throws', async () => {
    const mill = aMill(memory());
    const validate = (): never => {
      throw new TypeError('bug in a schema');
    };
    const schema = { '~standard': { version: 1 as const, vendor: 'test', validate } };
    await expect(mill.enqueue(defineJob('a', { schema }), {})).rejects.toThrow('bug in a schema');
    expect(await mill.jobs.count()).toBe(0);
  });
});

describe('schemas that transform the payload', () => {
  it('stores the payload as given, and passes the transformed value to the handler', async () => {
    const clock = virtualClock('2025-01-01');
    const mill = aMill(memory({ clock }));
    let seen: unknown;
    const type = mill.job('remind', { schema: dateSchema }, ({ data }) => {
      seen = data;
      return data.at.getTime();
    });
    const { id, data } = await type.enqueue({ at: '2025-06-01' });
    expect(data).toEqual({ at: '2025-06-01' });
    await mill.start();
    await clock.advance('1s');
    expect(seen).toEqual({ at: new Date('2025-06-01') });
    expect(await mill.jobs.get(id)).toMatchObject({
      status: 'completed',
      data: { at: '2025-06-01' },
      result: Date.parse('2025-06-01'),
    });
  });

  it('transforms the stored payload again on each attempt', async () => {
    const clock = virtualClock('2025-01-01');
    const mill = aMill(memory({ clock }));
    const seen: unknown[] = [];
    const type = mill.job('remind', { schema: dateSchema }, ({ data, attempt }) => {
      seen.push(data);
      if (attempt === 1) throw new Error('again');
    });
    await mill.start();
    await type.enqueue({ at: '2025-06-01' });
    await clock.advance('1m');
    expect(seen).toEqual([{ at: new Date('2025-06-01') }, { at: new Date('2025-06-01') }]);
  });

  it('a shared definition transforms the payload in the worker of another mill', async () => {
    const clock = virtualClock('2025-01-01');
    const store = memory({ clock });
    const [producer, worker] = [aMill(store), aMill(store)];
    const remind = defineJob('remind', { schema: dateSchema });
    let seen: unknown;
    worker.work(remind, { concurrency: 1 }, ({ data }) => void (seen = data.at));
    await worker.start();
    await producer.enqueue(remind, { at: '2025-06-01' });
    await clock.advance('1s');
    expect(seen).toEqual(new Date('2025-06-01'));
  });
});
