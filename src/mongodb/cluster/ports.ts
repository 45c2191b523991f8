import type { AuditStore } from '../../store/audit.js';
import type { InstanceStore, LockStore } from '../../store/port.js';
import type { Mongo } from '../context.js';
import { auditStore } from './audit.js';
import { instanceStore } from './instances.js';
import { lockStore } from './locks.js';
import { watch } from './watch.js';

/** What instances need of each other. A process that only enqueues does not load it. */
export interface ClusterPorts {
  readonly instances: InstanceStore;
  readonly locks: LockStore;
  readonly audit: AuditStore;
  readonly watch: typeof watch;
}

export const clusterPorts = (mongo: () => Mongo): ClusterPorts => ({
  instances: instanceStore(mongo),
  locks: lockStore(mongo),
  audit: auditStore(() => mongo().audit),
  watch,
});
