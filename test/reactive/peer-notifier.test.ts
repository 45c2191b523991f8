import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/clock.js';
import { PeerNotifier, Peers } from '../../src/reactive/peer-notifier.js';
import { virtualClock } from '../../src/testing/index.js';
import { aCluster } from '../engine/support.js';
import { gate, until } from '../support/mills.js';

/** A bell whose notifications are answered when the test says so. */
function aBell() {
  const answers: ((error?: Error) => void)[] = [];
  const errors: unknown[] = [];
  const notifier = new PeerNotifier({
    clock: systemClock,
    stop: new AbortController().signal,
    send: async () => {
      const { promise, open } = gate<Error | undefined>();
      answers.push(open);
      const error = await promise;
      if (error !== undefined) throw error;
    },
    error: (error) => errors.push(error),
  });
  return { notifier, answers, errors };
}

describe('the notifier for other instances', () => {
  it('notifies again for work that was planned after the current notification was sent', async () => {
    const { notifier, answers } = aBell();
    notifier.notify();
    await until('the first is sent', () => answers.length === 1);
    notifier.notify();
    notifier.notify();
    answers[0]?.();
    await until('the second is sent', () => answers.length === 2);
    answers[1]?.();
    await notifier.quiet();
    expect(answers).toHaveLength(2);
  });

  it('notifies again after a notification failed', async () => {
    const { notifier, answers, errors } = aBell();
    notifier.notify();
    await until('the first is sent', () => answers.length === 1);
    notifier.notify();
    answers[0]?.(new Error('lost'));
    await until('the second is sent', () => answers.length === 2);
    answers[1]?.();
    await notifier.quiet();
    expect(errors).toHaveLength(1);
  });

  it.each([0, 1, 2, 3, 4, 5, 6, 7])(
    'notifies for work planned %i microtasks after the end of the previous notification',
    async (turns) => {
      const { notifier, answers } = aBell();
      notifier.notify();
      await until('the first is sent', () => answers.length === 1);
      answers[0]?.();
      for (let turn = 0; turn < turns; turn += 1) await Promise.resolve();
      notifier.notify();
      await until('the second is sent', () => answers.length === 2, 1_000);
      answers[1]?.();
      await notifier.quiet();
    },
  );
});

describe('the list of other instances', () => {
  const me = { life: 'me' };
  const look = (at: number, ...lives: string[]) => ({
    ...aCluster(lives.map((life) => ({ life }))),
    now: new Date(at),
  });

  it('peers come from the newest look, in whatever order looks are answered', () => {
    const peers = new Peers(virtualClock());
    peers.observe(look(1_000, 'me'), me);
    expect(peers.none).toBe(true);
    expect(peers.observe(look(3_000, 'me', 'other'), me)).toBe(true);
    expect(peers.observe(look(2_000, 'me'), me)).toBe(false);
    expect(peers.none).toBe(false);
  });

  it("peers are updated again soon after the server's clock was set back", async () => {
    const clock = virtualClock();
    const peers = new Peers(clock);
    peers.observe(look(3_600_000, 'me'), me);
    await clock.advance('5s');
    peers.observe(look(5_000, 'me', 'other'), me);
    await clock.advance('5s');
    expect(peers.observe(look(10_000, 'me', 'other'), me)).toBe(true);
    expect(peers.none).toBe(false);
  });
});
