import type { ChangeStream, ChangeStreamOptions, Document } from 'mongodb';
import type { Watch, WatchHandlers } from '../../store/port.js';
import { BSON_OPTIONS } from '../context.js';
import { classifyError, lacksChangeStreams } from '../errors.js';

/** One command every ten seconds while nothing happens. */
const AWAIT_MS = 10_000;

/** Of every change stream that only says that something happened. */
export const STREAM_OPTIONS: ChangeStreamOptions = {
  ...BSON_OPTIONS,
  readPreference: 'primary',
  maxAwaitTimeMS: AWAIT_MS,
  batchSize: 100,
  readConcern: { level: 'majority' },
};

/** Passes on the events of a change stream until it breaks or is closed. Resolves once no event can be missed. */
export async function followed(
  stream: ChangeStream<Document, Document>,
  handle: (event: Document) => void,
  { broken }: Pick<WatchHandlers, 'broken'>,
): Promise<Watch | { readonly unavailable: string }> {
  let isOpen = true;
  // The first resume token comes with the server's cursor: from here on, nothing is missed.
  const opened = new Promise((resolve) => stream.once('resumeTokenChanged', resolve));
  const reading = read(stream, handle);
  try {
    await Promise.race([opened, reading]);
  } catch (error) {
    await stream.close().catch(() => undefined);
    if (lacksChangeStreams(error))
      return { unavailable: 'the server has no change streams (it is not a replica set)' };
    throw classifyError('watch', error, false);
  }
  const ended = reading.catch(async (error: unknown) => {
    if (isOpen) broken(classifyError('watch', error, false));
    await stream.close().catch(() => undefined);
  });
  return {
    close: async () => {
      isOpen = false;
      await stream.close().catch(() => undefined);
      await ended;
    },
  };
}

/** Reads until the stream breaks or is closed; both reject. */
async function read(
  stream: ChangeStream<Document, Document>,
  handle: (event: Document) => void,
): Promise<never> {
  for (;;) handle(await stream.next());
}
