import { OptionError } from '../../core/errors.js';
import { checkDate, checkKeys, checkText } from '../../core/options.js';
import type { JobChanges, Store } from '../../store/port.js';
import { checkPriority } from '../definition.js';
import { payloadOf } from '../enqueue/enqueuer.js';
import { keyOf, keyText } from '../enqueue/limit-key.js';
import type { Registry } from '../registry.js';

/** What `jobs.update` changes; at least one of them. */
export interface UpdateChanges {
  /** The new payload. Default: stays. */
  readonly data?: unknown;
  /** From -10 to 10; higher runs first among jobs of the same name. Default: stays. */
  readonly priority?: number;
  /** The new due time. Default: stays. */
  readonly runAt?: Date;
  /**
   * By which key limits per key, turns and order count the job. Default: that of the new payload by the definition's
   * `limits.perKey.key`, else stays.
   */
  readonly key?: string | number;
}

const WHERE = 'jobs.update';
const KEYS = ['data', 'priority', 'runAt', 'key'] as const;

/** Returns undefined if there is no such job, whose schema would check the data. */
export async function changesOf(
  id: string,
  changes: UpdateChanges,
  store: Store,
  registry: Registry,
): Promise<JobChanges | undefined> {
  checkText(WHERE, 'id', id);
  if (store.jobs.update === undefined)
    throw new OptionError(`${WHERE}: the ${store.kind} store cannot change a job.`);
  checkKeys(WHERE, changes, [...KEYS]);
  const { data, priority, runAt, key } = changes;
  if (KEYS.every((key) => changes[key] === undefined))
    throw new OptionError(`${WHERE}: nothing to change; pass at least one of ${KEYS.join(', ')}.`);
  const checked = {
    ...(priority === undefined ? {} : { priority: checkPriority(WHERE, priority) }),
    ...(runAt === undefined ? {} : { nextRunAt: checkDate(WHERE, 'runAt', runAt) }),
    ...(key === undefined ? {} : { limitKey: keyText(`${WHERE}: key`, key) }),
  };
  if (data === undefined) return checked;
  const name = (await store.jobs.get(id))?.name;
  if (name === undefined) return undefined;
  const schema = registry.workers.get(name)?.definition.schema;
  const value = await payloadOf(WHERE, store, schema, data);
  const keyPath = registry.options(name)?.keyPath;
  const limitKey =
    keyPath === undefined || key !== undefined ? {} : { limitKey: keyOf(WHERE, keyPath, value) };
  return { ...checked, ...limitKey, data: { value } };
}
