import type { Document } from 'mongodb';
import { run } from '../context.js';
import type { Documents } from './context.js';
import { dueFilter } from './lock.js';

/** Returns every stage of a plan, wherever it is in the output of a server or of several shards. */
function stagesOf(plan: unknown): Document[] {
  if (typeof plan !== 'object' || plan === null) return [];
  const own = 'stage' in plan ? [plan as Document] : [];
  const inner = Object.entries(plan).filter(([part]) => part !== 'rejectedPlans');
  return [...own, ...inner.flatMap(([, part]) => stagesOf(part))];
}

/** An index scan that is bounded by the due time. A scan of the whole index does not help. */
function isTight(stage: Document, path: string): boolean {
  const bounds = (stage['indexBounds'] as Document | undefined)?.[path] as readonly string[] | undefined;
  return stage['stage'] === 'IXSCAN' && bounds !== undefined && !bounds.includes('[MinKey, MaxKey]');
}

/** Suggests an index: the fields that the condition compares with a value, then the due time. */
function advice({ fields, condition = {} }: Documents): Document {
  const isValue = (value: unknown): boolean =>
    typeof value !== 'object' || value === null || value instanceof Date;
  const equal = Object.entries(condition).filter(([path, value]) => !path.startsWith('$') && isValue(value));
  return { ...Object.fromEntries(equal.map(([path]) => [path, 1])), [fields.sleepUntil]: 1 };
}

/** Asks the server to explain the search for due documents, since only the server knows which index it would use. */
export async function documentIndexFaults(documents: Documents): Promise<readonly string[]> {
  const { collection, fields } = documents;
  const plan = await run('explain the search for documents', () =>
    collection
      .find(dueFilter(documents))
      .sort({ [fields.sleepUntil]: 1 })
      .limit(1)
      .explain('queryPlanner'),
  );
  const { winningPlan } = plan['queryPlanner'] as Document;
  if (stagesOf(winningPlan).some((stage) => isTight(stage, fields.sleepUntil))) return [];
  const create = `db.getCollection(${JSON.stringify(collection.collectionName)}).createIndex(${JSON.stringify(advice(documents))})`;
  return [
    `${collection.collectionName}: no index serves the search for due documents, so each poll reads the whole collection; create one: ${create}`,
  ];
}
