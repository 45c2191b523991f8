import type { ChangeStream, Document } from 'mongodb';
import type { ChangeHandlers, ChangeStore } from '../../store/jobs/changes.js';
import type { JobFilter, Watch } from '../../store/port.js';
import { followed, STREAM_OPTIONS } from '../cluster/change-stream.js';
import type { Mongo } from '../context.js';
import { keysFor, toText } from './document.js';

/**
 * The server filters by id or name. Only ids cross the wire, and a watcher that falls behind reads each job once, as it is
 * then. To filter by name the server looks up the document of an update; one that is gone matches no name.
 */
function pipelineFor({ ids, name }: Pick<JobFilter, 'ids' | 'name'>): Document[] {
  return [
    {
      $match: {
        operationType: { $in: ['insert', 'update', 'replace', 'delete'] },
        ...(ids === undefined ? {} : { 'documentKey._id': { $in: ids.flatMap(keysFor) } }),
        ...(name === undefined ? {} : { 'fullDocument.name': { $in: [...name] } }),
      },
    },
    { $project: { _id: 1, operationType: 1, 'documentKey._id': 1 } },
  ];
}

export const changeStore = (mongo: () => Mongo): ChangeStore => ({
  hears: 'most',
  watch: (filter, handlers) => watch(mongo(), filter, handlers),
});

async function watch(
  { jobs, transactions, watching }: Mongo,
  filter: Pick<JobFilter, 'ids' | 'name'>,
  handlers: ChangeHandlers,
): Promise<Watch | { readonly unavailable: string }> {
  if (!transactions) return { unavailable: 'the server has no change streams (it is not a replica set)' };
  const events: ChangeStream<Document, Document> = jobs.watch(pipelineFor(filter), {
    ...STREAM_OPTIONS,
    ...(filter.name === undefined ? {} : { fullDocument: 'updateLookup' as const }),
  });
  const handle = ({ documentKey }: Document): void =>
    handlers.changed([toText((documentKey as Document)['_id'])]);
  watching.add(events);
  try {
    const channel = await followed(events, handle, handlers);
    if ('unavailable' in channel) return channel;
    return { close: () => channel.close().finally(() => watching.delete(events)) };
  } catch (error) {
    watching.delete(events);
    throw error;
  }
}
