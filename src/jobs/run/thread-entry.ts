/** Runs in a worker thread: imports the module of a handler, and calls its default export for one job at a time. */
import { OptionError, reasonOf } from '../../core/errors.js';
import type { JobContext } from '../context.js';
import {
  checkCrossing,
  receivedError,
  sentError,
  type FromThread,
  type ThreadJob,
  type ThreadRequest,
  type ToThread,
} from './thread-messages.js';

type Handler = (job: JobContext) => unknown;

/** Returns what is wrong with the module, if that was asked. The end of a job is sent through its port. */
export default async function serve(request: ThreadRequest): Promise<string | undefined> {
  if ('check' in request) return handlerOf(request.module).then(() => undefined, reasonOf);
  const { module, job, port } = request;
  const send = (message: FromThread): void => port.postMessage(message);
  const controller = new AbortController();
  port.on('message', ({ abort }: ToThread) => controller.abort(receivedError(abort)));
  try {
    const handler = await handlerOf(module);
    const result = await handler(contextOf(job, controller.signal, send));
    checkCrossing(result, 'result');
    send({ kind: 'returned', result });
  } catch (thrown) {
    send({ kind: 'threw', error: sentError(thrown) });
  } finally {
    port.close();
  }
  return undefined;
}

async function handlerOf(module: string): Promise<Handler> {
  const loaded = (await import(module)) as { default?: unknown };
  // The default export of a CommonJS module that was compiled from an ES module is one level down.
  const inner: unknown = Reflect.get(Object(loaded.default) as object, 'default');
  const handler = typeof loaded.default === 'function' ? loaded.default : inner;
  if (typeof handler === 'function') return handler as Handler;
  throw new OptionError('It has no default export that is a function: export default async (job) => { … }.');
}

function contextOf(job: ThreadJob, signal: AbortSignal, send: (message: FromThread) => void): JobContext {
  return {
    ...job,
    signal,
    progress: (value) => {
      checkCrossing(value, 'progress');
      send({ kind: 'progress', value });
    },
    log: (message, fields) => {
      checkCrossing(fields, 'log fields');
      send({ kind: 'log', message, fields });
    },
    defer: (until) => send({ kind: 'defer', until }),
    complete: () =>
      Promise.reject(
        new OptionError(
          'complete({ transaction }) does not work in a thread: a transaction cannot leave the thread that began it. ' +
            'Return the result instead, or register the handler without `thread`.',
        ),
      ),
  };
}
