import type { Tidemill } from '../../index.js';
import type { Store } from '../../store/port.js';
import { until } from './fixtures.js';
import { spyOn } from './spy.js';

/** The method that writes single enqueues. The two differ in what they return for a job that has to wait. */
export const insertion = ({ jobs }: Store): 'insert' =>
  jobs.insertFree === undefined ? 'insert' : ('insertFree' as 'insert');

/** Runs jobs of the name until one of them neither queues nor meets a claim: the instance is at rest. */
export async function atRest(store: Store, mill: Tidemill, name: string): Promise<void> {
  await mill.start();
  const insert = spyOn(store.jobs, insertion(store));
  const claim = spyOn(store.jobs, 'claim');
  await until('a job need not queue', async () => {
    // The wake-up of an earlier one may come late, and with it a claim.
    const claimed = claim.calls.length;
    await mill.jobs.result((await mill.enqueue(name, {})).id);
    return insert.calls.at(-1)?.[0][0]?.claim !== undefined && claim.calls.length === claimed;
  });
  insert.restore();
  claim.restore();
  await until('its slot is free', () => mill.health().running === 0);
}
