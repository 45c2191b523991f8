import type { Collection, Document, Filter } from 'mongodb';

export interface ProcessInBatchesOptions {
  /** How many operations one call of `executeBatch` gets, unless a document yields several. Default: 1,000. */
  batchSize?: number;
  /** Asked before each document. */
  shouldStop?: () => boolean;
}

export interface ProcessInBatchesResult {
  processedDocuments: number;
  operationsPerformed: number;
}

/** Turns the documents of a query or pipeline into operations, and passes these on in batches. */
export async function processInBatches<TDoc extends Document, TOp>(
  collection: Collection<TDoc>,
  queryOrPipeline: Filter<TDoc> | Document[],
  transform: (doc: TDoc) => TOp | TOp[] | null | undefined | Promise<TOp | TOp[] | null | undefined>,
  executeBatch: (operations: TOp[]) => Promise<void>,
  { batchSize = 1_000, shouldStop = () => false }: ProcessInBatchesOptions = {},
): Promise<ProcessInBatchesResult> {
  const done = { processedDocuments: 0, operationsPerformed: 0 };
  let batch: TOp[] = [];
  const flush = async (): Promise<void> => {
    const operations = batch;
    batch = [];
    if (operations.length === 0) return;
    await executeBatch(operations);
    done.operationsPerformed += operations.length;
  };
  const documents: AsyncIterable<unknown> = Array.isArray(queryOrPipeline)
    ? collection.aggregate(queryOrPipeline)
    : collection.find(queryOrPipeline);
  for await (const document of documents) {
    if (shouldStop()) break;
    done.processedDocuments += 1;
    const made = await transform(document as TDoc);
    if (made !== null && made !== undefined) batch = batch.concat(made);
    if (batch.length >= batchSize) await flush();
  }
  await flush();
  return done;
}
