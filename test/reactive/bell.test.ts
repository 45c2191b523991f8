import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/clock.js';
import { Bell } from '../../src/reactive/bell.js';
import { gate, until } from '../support/mills.js';

/** A bell whose notifications are answered when the test says so. */
function aBell() {
  const answers: ((error?: Error) => void)[] = [];
  const errors: unknown[] = [];
  const bell = new Bell({
    clock: systemClock,
    stop: new AbortController().signal,
    ring: async () => {
      const { promise, open } = gate<Error | undefined>();
      answers.push(open);
      const error = await promise;
      if (error !== undefined) throw error;
    },
    error: (error) => errors.push(error),
  });
  return { bell, answers, errors };
}

describe('the bell for other instances', () => {
  it('rings again for work that was planned after the notification under way was sent', async () => {
    const { bell, answers } = aBell();
    bell.ring();
    await until('the first is sent', () => answers.length === 1);
    bell.ring();
    bell.ring();
    answers[0]?.();
    await until('the second is sent', () => answers.length === 2);
    answers[1]?.();
    await bell.quiet();
    expect(answers).toHaveLength(2);
  });

  it('rings after a notification that failed', async () => {
    const { bell, answers, errors } = aBell();
    bell.ring();
    await until('the first is sent', () => answers.length === 1);
    bell.ring();
    answers[0]?.(new Error('lost'));
    await until('the second is sent', () => answers.length === 2);
    answers[1]?.();
    await bell.quiet();
    expect(errors).toHaveLength(1);
  });
});
