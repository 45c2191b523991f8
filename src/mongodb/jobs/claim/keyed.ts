import type { ClaimableWork, KeyedWork } from '../../limits/keys/work.js';
import { BSON_OPTIONS, type Mongo } from '../../context.js';
import { SCHEMA_VERSION, toText, type JobDocument, type Key } from '../document.js';
import { clusterPipeline, readCluster } from './peek.js';
import { takeEach, takeMany } from './take.js';

/** Up to this many jobs are taken one by one. */
const FEW = 4;

/** The jobs of a name, as limits per key see them. */
export const keyedJobs = (mongo: Mongo, name: string): ClaimableWork<JobDocument> => ({
  owner: name,
  name,
  nameField: '$name',
  collection: mongo.jobs as unknown as KeyedWork['collection'],
  due: 'nextRunAt',
  named: { name: { $eq: name } },
  ours: { v: SCHEMA_VERSION, name: { $eq: name } },
  running: { status: 'processing' },
  isPrioritised: true,
  newest: { createdAt: -1, _id: -1 },
  hints: { byName: 'tidemill_by_name', ofKey: 'tidemill_of_key' },
  reading: BSON_OPTIONS,
  idText: toText,
  brief: clusterPipeline,
  readBrief: readCluster,
  take: async (ids, request, rules) => {
    const take = ids.length <= FEW && !mongo.sharded ? takeEach : takeMany;
    const rows = await take(mongo, ids as readonly Key[], request, rules);
    return rows.map((row) => ({ id: row._id, lockedAt: row['lockedAt'] as Date, row }));
  },
});
