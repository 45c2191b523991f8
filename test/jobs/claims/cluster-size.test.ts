import { expect, it } from 'vitest';
import { aClaim, anInstance, aRegistration, opened } from '../../support/port.js';
import { eachWire } from '../../support/wires.js';

/** Numbers in an answer may have more digits. */
const SLACK_BYTES = 64;
const INSTANCES = 100;
const names = Array.from({ length: 200 }, (_, n) => `send-some-email-${String(n)}`);

eachWire('the size of answers', (wire) => {
  it('claims, peeks and direct enqueues read as much with 100 instances of 200 names as with one', async () => {
    const { proxy, store: made } = await wire();
    const store = await opened(made);
    const instance = anInstance();
    const cost = async (call: () => Promise<unknown> | undefined): Promise<number> => {
      const before = proxy.received;
      await call();
      return proxy.received - before;
    };
    const costs = async (): Promise<readonly number[]> => [
      await cost(() => store.jobs.claim(aClaim(instance))),
      await cost(() => store.jobs.peek(['work'])),
      await cost(() => store.jobs.isHeldUp('work')),
    ];
    await store.instances.register(aRegistration());
    await costs();
    const alone = await costs();
    for (let n = 1; n < INSTANCES; n += 1) await store.instances.register(aRegistration({ names }));
    const crowded = await costs();
    for (const [at, bytes] of alone.entries()) {
      expect(bytes).toBeGreaterThan(0);
      expect(crowded[at]).toBeLessThanOrEqual(bytes + SLACK_BYTES);
    }
    const whole = await cost(() => store.instances.list());
    expect(whole / INSTANCES).toBeGreaterThan(names.join().length);
    expect((await cost(() => store.instances.leases?.())) / INSTANCES).toBeLessThan(250);
  });
});
