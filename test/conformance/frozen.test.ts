import { expect, it } from 'vitest';
import type { Registration } from '../../src/store/port.js';
import { until } from '../support/mills.js';
import { anInstance, opened } from '../support/port.js';
import { eachWire } from '../support/wires.js';

eachWire('connections that do not answer any more', (wire) => {
  it('are given up by the renewal of a lease, which then takes another one', async () => {
    const { proxy, store: closed } = await wire();
    const { instances } = await opened(closed);
    const registration: Registration = {
      ...anInstance(),
      names: [],
      tasks: [],
      policies: {},
      host: 'h',
      pid: 1,
      leaseMs: 3_000,
    };
    await instances.register(registration);
    expect(await instances.renew(registration)).toBe('renewed');
    proxy.freeze();
    const failures: unknown[] = [];
    const renewed = await until('it is renewed', () =>
      instances.renew(registration).catch((error: unknown) => {
        failures.push(error);
        return undefined;
      }),
    );
    expect(renewed).toBe('renewed');
    expect(failures).toMatchObject(failures.map(() => ({ code: 'STORE', transient: true })));
  });
});
